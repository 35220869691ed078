"""The chapter to look things up in: its index leads from what torch says to the entries."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import nbformat
import pytest
import torch
from nbformat import NotebookNode
from torch import nn

CELLS = nbformat.read(
    Path(__file__).parents[2] / "notebooks" / "when-it-goes-wrong.ipynb", as_version=4
).cells
SETUP = ("import", "data")  # the cells that every entry needs
SYMPTOMS = ("An error text", "NaN", "A wrong answer", "No effect", "Slow or too large")
WRITTEN_WITH = "2.13"  # the torch whose words the notebook has saved
# The exporter writes graphs past Python's streams, so no notebook may call it.
BY_EXPORT = ("Exporting the operator 'aten::", "scaled_dot_product_attention(): argument")
BY_GPU = "Expected all tensors to be on the same device"  # the notebooks run on a CPU


class Entry(NamedTuple):
    """One mistake: the heading that it stands under, its text, its cell."""

    symptom: str
    text: str
    cell: NotebookNode

    @property
    def output(self) -> str:
        return "".join(output.text for output in self.cell.outputs)


def _entries() -> dict[str, Entry]:
    symptoms: dict[str, str] = {}
    texts: dict[str, str] = {}
    cells: dict[str, NotebookNode] = {}
    symptom = heading = ""
    for cell in CELLS:
        if cell.cell_type == "code":
            assert heading not in cells, f"{heading} has two cells."
            cells |= {heading: cell} if heading else {}
            continue
        for part in re.split(r"^(?=##+ )", cell.source, flags=re.MULTILINE):
            if name := re.match(r"## (.+)\n", part):
                symptom, heading = name[1], ""
            if name := re.match(r"### (.+)\n", part):
                heading = name[1]
                symptoms[heading] = symptom
            texts[heading] = texts.get(heading, "") + part
    return {
        heading: Entry(symptoms[heading], texts[heading], cells[heading]) for heading in symptoms
    }


ENTRIES = _entries()
INDEX = next(cell.source for cell in CELLS if cell.source.startswith("## Find your error"))
LINES = re.findall(
    r"^- (?:`` (.+?) ``|`([^`]+)`)(?: \(torch ([\d.]+)\))?: \[([^]]+)\]\(#[^)]+\)$",
    INDEX,
    flags=re.MULTILINE,
)
ALL_ERRORS = [(ticked or plain, heading) for ticked, plain, _, heading in LINES]
ERRORS = [error for error, line in zip(ALL_ERRORS, LINES, strict=True) if not line[2]]


def _said(printed: str) -> list[str]:
    return re.findall(r"\b(?:\w+Error|UserWarning): (.+)", printed)


def test_there_are_twenty_entries_and_more_of_every_kind() -> None:
    assert len(ENTRIES) >= 20
    assert list(dict.fromkeys(entry.symptom for entry in ENTRIES.values())) == list(SYMPTOMS)


@pytest.mark.parametrize("heading", ENTRIES)
def test_an_entry_shows_a_mistake_and_says_how_to_mend_and_notice_it(heading: str) -> None:
    entry = ENTRIES[heading]
    assert entry.output.strip()
    assert entry.text.count("**Fix:**") == entry.text.count("**Notice it:**") == 1


def test_the_index_is_grouped_and_each_group_alphabetical() -> None:
    groups = re.findall(r"^\*\*(.+)\*\*\n\n((?:- .+\n?)+)", INDEX, flags=re.MULTILINE)
    assert len(groups) >= 5
    texts = [
        [text for text, _ in ALL_ERRORS if f"`{text}`" in lines or f" {text} " in lines]
        for _, lines in groups
    ]
    for listed in texts:
        assert listed == sorted(listed, key=lambda text: text.lower().lstrip("'_"))
    assert sum(lines.count("\n- ") + 1 for _, lines in groups) == len(ALL_ERRORS)


def test_every_line_of_the_index_is_read() -> None:
    assert len(LINES) == len(re.findall(r"^- ", INDEX, flags=re.MULTILINE)) >= 30
    assert len({text for text, _ in ALL_ERRORS}) == len(ALL_ERRORS)


@pytest.mark.parametrize(
    ("text", "heading"),
    [error for error in ERRORS if not error[0].startswith((*BY_EXPORT, BY_GPU))],
)
def test_an_error_text_begins_what_torch_says_in_the_entry(text: str, heading: str) -> None:
    assert any(said.startswith(text) for said in _said(ENTRIES[heading].output))


def test_an_error_that_an_entry_shows_is_in_the_index() -> None:
    shown = {(said, heading) for heading, entry in ENTRIES.items() for said in _said(entry.output)}
    missing = {
        said
        for said, heading in shown
        if not any(said.startswith(text) and heading == at for text, at in ERRORS)
    }
    assert not missing


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


@pytest.mark.usefixtures("settings_as_before")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize(
    ("text", "heading"), [error for error in ERRORS if error[0].startswith(BY_EXPORT)]
)
def test_the_older_exporter_fails_on_and_off_the_fast_path(text: str, heading: str) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    models = {"_native_multi": SelfAttention(), "_transformer": layer, "is_causal": layer}
    (model,) = (model for name, model in models.items() if name in text)
    torch.backends.mha.set_fastpath_enabled("Exporting" in text)
    with torch.no_grad(), pytest.raises(Exception) as raised:
        torch.onnx.export(
            model.eval(), (torch.randn(2, 4, 8),), io.BytesIO(), dynamo=False, opset_version=20
        )
    assert str(raised.value).startswith(text)
    assert text.split("'")[0].strip() in ENTRIES[heading].text


def test_an_entry_quotes_what_torch_says_of_two_devices() -> None:
    (heading,) = (heading for text, heading in ERRORS if text == BY_GPU)
    assert BY_GPU in ENTRIES[heading].text
    if torch.cuda.is_available():
        x = torch.randn(2, 4, 8, device="cuda")
        with pytest.raises(RuntimeError, match=f"^{BY_GPU}"):
            nn.MultiheadAttention(8, 2)(x, x, x)


def test_links_lead_to_headings_in_jupyter_lab_and_on_the_page() -> None:
    """JupyterLab keeps the case of a heading, MyST does not: linked headings are in lower case."""
    text = "\n\n".join(cell.source for cell in CELLS if cell.cell_type == "markdown")
    links = re.findall(r"\[([^]]+)\]\(#([^)]+)\)", text)
    assert {heading for heading, _ in links} >= ENTRIES.keys()
    for heading, anchor in links:
        assert heading in ENTRIES and re.fullmatch(r"[a-z_]+(?: [a-z_]+)*", heading)
        assert anchor == heading.replace(" ", "-")


@pytest.fixture
def settings_as_before() -> Iterator[None]:
    fast = torch.backends.mha.get_fastpath_enabled()
    yield
    torch.backends.mha.set_fastpath_enabled(fast)
    torch.set_printoptions(profile="default")


@pytest.mark.usefixtures("settings_as_before")
@pytest.mark.parametrize("heading", ENTRIES)
def test_an_entry_runs_alone_after_the_setup(heading: str) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for cell in CELLS:
            if cell.id in SETUP:
                exec(cell.source, names)
        printed.truncate(printed.seek(0))
        exec(ENTRIES[heading].cell.source, names)
    if torch.__version__.startswith(WRITTEN_WITH):
        assert printed.getvalue() == ENTRIES[heading].output
    else:  # other numbers and words, but the index has them all
        found = [text for text, at in ALL_ERRORS if at == heading]
        assert all(said.startswith(tuple(found)) for said in _said(printed.getvalue()))
    assert torch.backends.mha.get_fastpath_enabled()
