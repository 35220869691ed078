"""The rooms of the package, and which way the arrows between them may point."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import mha_widgets

ROOT = Path(mha_widgets.__file__).parent
FORBIDDEN = {
    "attention": {"plotly", "ipywidgets", "anywidget", "mha_widgets.figures", "mha_widgets.explorer", "mha_widgets.explorers"},
    "figures": {"torch", "ipywidgets", "anywidget", "mha_widgets.attention", "mha_widgets.explorer", "mha_widgets.explorers"},
    "explorers": {"ipywidgets", "anywidget"},
    "explorer.py": {"torch", "ipywidgets", "anywidget", "mha_widgets.attention", "mha_widgets.explorers"},
    "live.py": {"torch", "mha_widgets.attention", "mha_widgets.explorers"},
    "page.py": {"torch", "ipywidgets", "anywidget", "mha_widgets.attention", "mha_widgets.explorers"},
    "markup.py": {"torch", "ipywidgets", "mha_widgets.attention", "mha_widgets.explorers"},
}
HOSTS = {"mha_widgets.live", "mha_widgets.page", "mha_widgets.sphinx_ext"}


def name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name(path): path for path in ROOT.rglob("*.py")}


def imports(path: Path, *, lazy: bool = True) -> set[str]:
    """Return the modules that a file imports; without the lazy ones, those of its top level."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: set[str] = set()
    for node in ast.walk(tree) if lazy else tree.body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names} & MODULES.keys()
            found.add(str(node.module))
    return found


def test_a_room_imports_nothing_that_it_must_not_know() -> None:
    for room, forbidden in FORBIDDEN.items():
        files = (ROOT / room).rglob("*.py") if (ROOT / room).is_dir() else [ROOT / room]
        for path in files:
            for found in imports(path):
                broken = [bad for bad in forbidden if found == bad or found.startswith(bad + ".")]
                assert not broken, f"{name(path)} imports {found}"


def test_only_the_display_hook_and_the_hosts_know_a_host() -> None:
    users = {module for module, path in MODULES.items() if imports(path) & HOSTS}
    assert users == {"mha_widgets.explorer", "mha_widgets.sphinx_ext"}
    assert not imports(MODULES["mha_widgets.explorer"], lazy=False) & HOSTS


def test_no_import_cycles() -> None:
    graph = {module: (imports(path, lazy=False) & MODULES.keys()) - {module, "mha_widgets"} for module, path in MODULES.items()}
    order = list(TopologicalSorter(graph).static_order())
    assert order.index("mha_widgets.attention.masks") < order.index("mha_widgets.explorers.masks")


def test_the_front_door_is_imports_and_all() -> None:
    body = ast.parse(MODULES["mha_widgets"].read_text(encoding="utf-8")).body[1:]
    assert all(isinstance(node, (ast.ImportFrom, ast.Assign)) for node in body)
    assert sorted(mha_widgets.__all__) == mha_widgets.__all__
