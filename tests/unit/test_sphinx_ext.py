"""The Sphinx extension in a small project of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

import mha_widgets

PACKAGE = Path(mha_widgets.__file__).parent
CONFIG = """
extensions = ["myst_nb", "mha_widgets.sphinx_ext"]
nb_execution_mode = "cache"
nb_mime_priority_overrides = [["html", "text/html", 0]]
"""
CELL = "from mha_widgets import explorers\nexplorers.Attention()"
QUIZ = "from mha_widgets import exercises\nexercises.quiz('quizzes/chapter.json')"
QUESTION = (
    '[{"question": "How wide?", "type": "multiple_choice", "answers": [{"answer": "4", "correct":'
    " true}]}]"
)


class Project:
    """A Sphinx project with a copy of the package, which a test may change."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(
            PACKAGE, folder / "lib" / "mha_widgets", ignore=shutil.ignore_patterns("__pycache__")
        )
        self.source = folder / "source"
        self.source.mkdir()
        (self.source / "conf.py").write_text(CONFIG)
        (self.source / "index.md").write_text(
            "# Start\n\n```{mha-explorer} Attention\n```\n\n```{toctree}\nchapter\nplain\n```\n"
        )
        (self.source / "plain.md").write_text("# Plain\n")
        (self.source / "quizzes").mkdir()
        (self.source / "quizzes" / "chapter.json").write_text(QUESTION)
        cells = [
            nbformat.v4.new_markdown_cell("# Chapter"),
            *map(nbformat.v4.new_code_cell, (QUIZ, CELL)),
        ]
        notebook = nbformat.v4.new_notebook(cells=cells)
        nbformat.write(notebook, self.source / "chapter.ipynb")

    def build(self, *options: str) -> subprocess.CompletedProcess[str]:
        paths = [str(self.folder / "lib"), os.environ.get("PYTHONPATH", "")]
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "sphinx",
                "-b",
                "html",
                *options,
                str(self.source),
                str(self.folder / "site" / "html"),
            ],
            cwd=self.folder,  # not the folder of the real package
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
            capture_output=True,
            text=True,
        )

    def page(self, name: str) -> str:
        return (self.folder / "site" / "html" / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project(tmp_path_factory.mktemp("project"))
    result = made.build("-W", "-n")
    assert result.returncode == 0, result.stdout + result.stderr
    return made


@pytest.mark.parametrize("name", ["index.html", "chapter.html"])
def test_a_page_with_an_explorer_has_what_it_needs(project: Project, name: str) -> None:
    html = project.page(name)
    assert html.count('<section class="mha-explorer" data-explorer="Attention"') == 1
    assert (
        "_static/mha_widgets/mha-explorer.js" in html
        and "_static/mha_widgets/mha-explorer.css" in html
    )
    for asset in ("mha-explorer.js", "mha-explorer.css", "plotly.min.js"):
        assert (
            project.folder / "site" / "html" / "_static" / "mha_widgets" / asset
        ).stat().st_size > 1000


def test_a_page_without_an_explorer_loads_nothing_of_it(project: Project) -> None:
    assert "mha-explorer" not in project.page("plain.html")


def test_a_changed_package_changes_every_page(project: Project) -> None:
    source = project.folder / "lib" / "mha_widgets" / "explorers" / "attention.py"
    unchanged = project.build("-W")
    assert "0 added, 0 changed, 0 removed" in unchanged.stdout
    source.write_text(source.read_text().replace("step by step", "one step after another"))
    result = project.build("-W")
    assert result.returncode == 0, result.stdout + result.stderr
    for name in ("index.html", "chapter.html"):
        assert "attention, one step after another" in project.page(name)


def test_a_changed_question_changes_its_page(project: Project) -> None:
    assert "How wide?" in project.page("chapter.html")
    (project.source / "quizzes" / "chapter.json").write_text(QUESTION.replace("wide", "high"))
    result = project.build("-W")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "How high?" in project.page("chapter.html")


def test_a_project_without_notebooks_needs_nothing_else(tmp_path: Path) -> None:
    project = Project(tmp_path)
    shutil.rmtree(project.source)
    project.source.mkdir()
    (project.source / "conf.py").write_text('extensions = ["mha_widgets.sphinx_ext"]')
    (project.source / "index.rst").write_text("Start\n=====\n\n.. mha-explorer:: Attention\n")
    result = project.build("-W", "-n")
    assert result.returncode == 0, result.stdout + result.stderr
    assert 'data-explorer="Attention"' in project.page("index.html")


def test_an_unknown_explorer_is_named_with_those_there_are(tmp_path: Path) -> None:
    project = Project(tmp_path)
    (project.source / "index.md").write_text("# Start\n\n```{mha-explorer} Mask\n```\n")
    (project.source / "chapter.ipynb").unlink()
    there_are = ", ".join(mha_widgets.explorers.catalog())
    assert f"There is no explorer 'Mask'; there are {there_are}." in project.build().stderr


@pytest.mark.parametrize("mode", ["off", "auto"])
def test_an_explorer_that_was_saved_is_named_and_not_blank(tmp_path: Path, mode: str) -> None:
    project = Project(tmp_path)
    (project.source / "conf.py").write_text(CONFIG.replace('"cache"', f'"{mode}"'))
    path = project.source / "chapter.ipynb"
    notebook = nbformat.read(path, as_version=4)
    masks, other = [
        nbformat.v4.new_code_cell(
            source, outputs=[nbformat.v4.new_output("execute_result", data, execution_count=1)]
        )
        for source, data in (
            (
                "explorers.Masks()",  # as JupyterLab saves it
                {
                    "text/plain": "Masks explorer: attn_mask, padding",
                    "application/vnd.jupyter.widget-view+json": {"model_id": "0" * 32},
                },
            ),
            ("2", {"text/plain": "2"}),
        )
    ]
    notebook.cells = [notebook.cells[0], masks, other]
    nbformat.write(notebook, path)
    result = project.build()
    assert result.returncode == 0, result.stderr
    (line,) = [line for line in result.stderr.splitlines() if "shows nothing" in line]
    assert "chapter.ipynb" in line and "The explorer Masks" in line and "cache or force" in line
    text = project.page("chapter.html")
    assert "Here belongs the explorer Masks." in text and "widget-view" not in text
    assert "shows nothing" not in project.build("-E", "-D", "suppress_warnings=mha_widgets").stderr
