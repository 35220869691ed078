"""The README's programs run, one after another, and do what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mha_widgets import explore

README = Path(__file__).parents[2] / "README.md"


def test_its_programs_run_in_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made: dict[str, Any] = {}
    for program in re.findall(
        "```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL
    ):
        exec(program, made)
    assert (made["explorer"].state["row"], made["explorer"].state["step"]) == (3, "scores")
    made["explorer"].set(row=2)
    assert capsys.readouterr().out == "2\n"
    assert (tmp_path / "attention.html").stat().st_size > 4_000_000
    assert (
        made["traced"]["weights"].shape
        == (2, 4, 5, 5)
        == made["captured"]["layers.1.self_attn"][0].shape
    )
    names = list(explore(made["module"], made["x"]).controls)
    assert {"need_weights", "average_attn_weights", "training", "sample"} <= set(
        names
    ) and "key_padding_mask" not in names
    assert list(explore(made["captured"]).controls)[0] == "module"
