"""The Sphinx extension: explorers without a kernel in a Jupyter Book or any other Sphinx project.

Add ``mha_widgets.sphinx_ext`` to the project's extensions. Then an explorer at the end of a
notebook's cell is alive on the built page, if the build executes the notebook (``execute_notebooks:
cache`` or ``force``); where it doesn't, it says so. On a page of prose the directive
``mha-explorer`` puts one of them, and ``mha-gallery`` all.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import re
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from mha_widgets import explorers
from mha_widgets.explorer import HOST
from mha_widgets.hosts import page

FOLDER = "mha_widgets"  # in the site's _static
SAVED = re.compile(r"(\w+) explorer: ")  # the text of an explorer

logger = logging.getLogger(__name__)


class MhaExplorer(SphinxDirective):
    """Shows an explorer by its name in the catalogue, with its own data."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the explorer as raw HTML.

        Raises:
            docutils.parsers.rst.DirectiveError: no explorer has that name.
        """
        name, catalog = self.arguments[0], explorers.catalog()
        if name not in catalog:
            raise self.error(f"There is no explorer {name!r}; there are {', '.join(catalog)}.")
        return [nodes.raw("", catalog[name]().to_html(), format="html")]


class MhaGallery(SphinxDirective):
    """Shows every explorer of the catalogue in a section of its own: what it is for,
    and what it takes.
    """

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        made: list[nodes.Node] = []
        for name, explorer in explorers.catalog().items():
            section = nodes.section(
                "", nodes.title(name, name), ids=[nodes.make_id(name)], names=[name.lower()]
            )
            purpose, messages = self.parse_inline(
                " ".join((inspect.getdoc(explorer) or "").split("\n\n")[0].split())
            )
            call = f"explorers.{name}({', '.join(inspect.signature(explorer).parameters)})"
            section += nodes.paragraph(
                "",
                "",
                *purpose,
                nodes.Text(" Of your own: "),
                nodes.literal(call, call),
                nodes.Text("."),
            )
            section += [*messages, nodes.raw("", explorer().to_html(), format="html")]
            made.append(section)
        return made


def fingerprint() -> str:
    """Return a digest of everything in the package, and of the versions of torch and plotly."""
    digest = hashlib.sha256(f"{version('torch')} {version('plotly')}".encode())
    root = Path(str(files("mha_widgets")))
    for path in sorted(root.rglob("*")):
        if path.suffix in (".py", ".js", ".css"):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _configure(app: Sphinx, config: Config) -> None:
    os.environ[HOST] = "page"  # inherited by the kernels that execute the notebooks
    questions = [
        path.read_bytes()
        for folder in ("quizzes", "*/quizzes")
        for path in sorted(app.srcdir.glob(f"{folder}/*.json"))
    ]
    config["mha_widgets_fingerprint"] += hashlib.sha256(b"\0".join(questions)).hexdigest()[:8]
    if "nb_execution_cache_path" in config:  # MyST-NB looks at a notebook's source alone
        cache = Path(
            config["nb_execution_cache_path"] or Path(app.outdir).parent / ".jupyter_cache"
        )
        config["nb_execution_cache_path"] = str(
            cache / f"mha_widgets-{config['mha_widgets_fingerprint']}"
        )


def _replace_saved(app: Sphinx, doctree: nodes.document) -> None:
    """Put a sentence in place of explorers that a notebook was saved with:
    these need its kernel.
    """
    for output in doctree.findall(nodes.container):
        if output.get("nb_element") != "mime_bundle":
            continue
        texts = {
            made["mime_type"]: made.astext()
            for made in output.findall(nodes.container)
            if "mime_type" in made
        }
        saved = SAVED.match(texts.get("text/plain", ""))
        if saved is None or "text/html" in texts:
            continue
        name = saved[1]
        logger.warning(
            f"The explorer {name} shows nothing on this page: its cell was run before this build; "
            "set execute_notebooks to cache or force.",
            location=output,
            type="mha_widgets",
            subtype="saved",
        )
        sentence = (
            f"Here belongs the explorer {name}. It appears when the build of this site executes the"
            " notebook."
        )
        output.children = []
        output += nodes.container("", nodes.paragraph("", sentence), mime_type="text/plain")


def _write_assets(app: Sphinx) -> None:
    if app.builder.format == "html":
        page.write_assets(Path(app.outdir) / "_static" / FOLDER)


def _link_assets(
    app: Sphinx, name: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    if 'class="mha-explorer"' in context.get("body", ""):
        app.add_css_file(f"{FOLDER}/{page.STYLE}")
        app.add_js_file(f"{FOLDER}/{page.SCRIPT}", loading_method="defer")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the extension to a Sphinx project."""
    app.add_directive("mha-explorer", MhaExplorer)
    app.add_directive("mha-gallery", MhaGallery)
    # another package or question rebuilds every page
    app.add_config_value("mha_widgets_fingerprint", fingerprint(), "env")
    app.connect("config-inited", _configure)
    app.connect("builder-inited", _write_assets)
    app.connect("doctree-read", _replace_saved)
    app.connect("html-page-context", _link_assets)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
