"""The API page names everything that the package offers."""

from __future__ import annotations

import re
from pathlib import Path

import mha_widgets
from mha_widgets import exercises, explorers, load

PAGE = (Path(__file__).parents[2] / "book" / "api.md").read_text(encoding="utf-8")


def test_it_documents_every_public_name() -> None:
    documented = re.findall(
        r"^\.\. auto(?:function|class|module):: (?:mha_widgets\.)?(\S+)$", PAGE, flags=re.MULTILINE
    )
    modules = {"exercises": exercises, "explorers": explorers, "load": load}
    offered = [name for name in mha_widgets.__all__ if name not in ("exercises", "explorers")]
    offered += [
        f"{name}.{public}"
        for name in ("exercises", "explorers")
        for public in modules[name].__all__
    ]
    assert sorted(documented) == sorted([*offered, "figures", "kit", "sphinx_ext"])
