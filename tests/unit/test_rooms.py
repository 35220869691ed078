"""The rooms of the package, and which way the arrows between them may point."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path
from types import ModuleType

import pytest

import mha_widgets
from mha_widgets import explorers, figures, kit

ROOT = Path(mha_widgets.__file__).parent
# What each room may know of the others; of the libraries, only those of OUTSIDE are held.
ARROWS: dict[str, set[str]] = {
    "attention": set(),
    "figures": set(),
    "view": set(),
    "kit": {"attention", "view"},
    "hosts": {"figures", "view"},
    "explorer": {"hosts", "view"},
    "explorers": {"explorer", "view", "kit", "figures", "attention"},
    "explore": {"explorer", "explorers", "attention"},
    "exercises": {"attention", "kit"},
    "sphinx_ext": {"explorer", "explorers", "hosts"},
}
OUTSIDE: dict[str, set[str]] = {
    "attention": {"torch"},
    "figures": {"plotly"},
    "view": {"plotly"},
    "kit": {"torch"},
    "hosts": {"plotly", "ipywidgets", "anywidget"},
    "explorer": {"plotly"},
    "explorers": {"torch", "plotly"},
    "explore": {"torch"},
    "exercises": {"torch"},
    "sphinx_ext": {"sphinx", "docutils"},
}
WHOLE = ("batch", "panels", "sentence")  # modules that explorers import as they are
LIBRARIES = {"torch", "plotly", "ipywidgets", "anywidget", "sphinx", "docutils"}


def name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name(path): path for path in ROOT.rglob("*.py")}


def room(module: str) -> str:
    return module.split(".")[1]


def nodes(tree: ast.AST, *, lazy: bool) -> list[ast.AST]:
    """Return the statements of a file that run: those for a type checker alone don't."""
    found: list[ast.AST] = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        found.append(node)
        if lazy:
            found += nodes(node, lazy=True)
    return found


def imports(path: Path, *, lazy: bool = True) -> set[str]:
    """Return the modules that a file imports; without the lazy ones, those of its top level."""
    found: set[str] = set()
    for node in nodes(ast.parse(path.read_text(encoding="utf-8")), lazy=lazy):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            whole = {f"{node.module}.{alias.name}" for alias in node.names} & MODULES.keys()
            found |= whole or {str(node.module)}
    return found


@pytest.mark.parametrize("module", sorted(MODULES.keys() - {"mha_widgets"}))
def test_a_room_imports_only_what_it_may_know(module: str) -> None:
    found = imports(MODULES[module])
    rooms = {room(other) for other in found if other.startswith("mha_widgets.")} - {room(module)}
    assert rooms <= ARROWS[room(module)]
    assert {other.split(".")[0] for other in found} & LIBRARIES <= OUTSIDE[room(module)]


@pytest.mark.parametrize(
    "module", sorted(other for other in MODULES if other.startswith("mha_widgets.explorers."))
)
def test_no_explorer_imports_another(module: str) -> None:
    own = ".".join(module.split(".")[:3])
    others = {
        other for other in imports(MODULES[module]) if other.startswith("mha_widgets.explorers")
    }
    assert all(other == own or other.startswith(own + ".") for other in others)


def test_only_the_display_hook_and_sphinx_know_a_host() -> None:
    users = {
        module
        for module, path in MODULES.items()
        if any(".hosts" in other for other in imports(path))
    }
    assert {module for module in users if room(module) != "hosts"} == {
        "mha_widgets.explorer",
        "mha_widgets.sphinx_ext",
    }
    assert not any(
        ".hosts" in other for other in imports(MODULES["mha_widgets.explorer"], lazy=False)
    )


def test_no_import_cycles() -> None:
    graph = {
        module: (imports(path, lazy=False) & MODULES.keys()) - {module, "mha_widgets"}
        for module, path in MODULES.items()
    }
    order = list(TopologicalSorter(graph).static_order())
    assert order.index("mha_widgets.attention.masks") < order.index("mha_widgets.explorers.masks")


def test_the_front_door_is_imports_and_all() -> None:
    body = ast.parse(MODULES["mha_widgets"].read_text(encoding="utf-8")).body[1:]
    assert all(isinstance(node, (ast.ImportFrom, ast.Assign)) for node in body)
    assert sorted(mha_widgets.__all__) == mha_widgets.__all__


@pytest.mark.parametrize("face", [figures, kit])
def test_a_face_says_what_each_of_its_names_is_for(face: ModuleType) -> None:
    assert [name for name in face.__all__ if f"``{name}``" not in str(face.__doc__)] == []
    for module, path in MODULES.items():
        if module.startswith("mha_widgets.explorers"):
            behind = {other for other in imports(path) if other.startswith(f"{face.__name__}.")}
            modules = {f"{face.__name__}.{name}" for name in (*face.__all__, *WHOLE)}
            assert behind <= modules, f"{module} goes around {face.__name__} to {behind - modules}."


def test_every_explorer_of_the_folder_is_exported() -> None:
    found = set()
    for path in (ROOT / "explorers").rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and "Explorer" in map(ast.unparse, node.bases):
                found.add(node.name)
    missing = found ^ set(explorers.catalog())
    assert not missing, f"mha_widgets/explorers/__init__.py and the folder differ in {missing}."
