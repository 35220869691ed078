"""What CONTRIBUTING promises to who adds an explorer: little to read, and a whole one."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from mha_widgets.explorer import Explorer

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTION = TEXT.split("## An explorer\n")[1].split("\n## ")[0]


def test_there_is_little_to_read() -> None:
    files = ["CONTRIBUTING.md", *re.findall(r"`(mha_widgets/\S+\.py)`", SECTION)]
    files = list(dict.fromkeys(files))
    lines = sum(len((ROOT / file).read_text(encoding="utf-8").splitlines()) for file in files)
    assert len(files) <= 6 and lines <= 650, (files, lines)


def test_the_skeleton_is_a_whole_explorer_of_40_lines(tmp_path: Path) -> None:
    (skeleton,) = re.findall(r"```python\n(.*?)```", SECTION, flags=re.DOTALL)
    assert len(skeleton.splitlines()) <= 40
    names: dict[str, object] = {}
    exec(skeleton, names)
    (made,) = [
        kind() for kind in names.values() if isinstance(kind, type) and Explorer in kind.__bases__
    ]
    for state in made.states():
        shown: dict[str, np.ndarray] = {}
        exec(made.view(**state).code, shown)
        np.testing.assert_allclose(shown["weights"][0], made.compute(**state).weights)
        assert made.view(**state).facts[0][0].text == "“cat”"
    made.write_html(tmp_path / "skeleton.html", include_plotlyjs=False)
