"""Execute every notebook in notebooks/ and save it cleaned, so that a second run changes nothing.

Run it with `make notebooks`.
"""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
WIDGET = "application/vnd.jupyter.widget-view+json"
# The same on every machine, whatever Python ran the notebook.
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python", "pygments_lexer": "ipython3"},
}
KEPT_CELL_METADATA = ("editable", "jupyter", "mystnb", "nbval", "slideshow", "tags")


def execute(path: Path) -> str:
    """Run a notebook from its own folder and return the text to save."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=300,
        resources={"metadata": {"path": str(path.parent)}},
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,
    ).execute()
    clean(notebook)
    return nbformat.writes(notebook) + "\n"


def clean(notebook: NotebookNode) -> None:
    """Drop what differs from run to run, and what only a running kernel can show."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict(
            {key: cell.metadata[key] for key in KEPT_CELL_METADATA if key in cell.metadata}
        )
        if cell.source.startswith("exercises.quiz("):  # it has another id in every run
            cell.outputs = []
        for output in cell.get("outputs", []):
            clean_output(output)


def clean_output(output: NotebookNode) -> None:
    """Leave the one line of text of an explorer, and of an error its message without any path."""
    if output.output_type == "error":
        output.traceback = [f"{output.ename}: {output.evalue}"]
    elif WIDGET in output.get("data", {}):
        output.data = {"text/plain": output.data["text/plain"]}
        output.metadata = {}


def main() -> None:
    """Save each notebook that changed."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        text = execute(path)
        changed = text != path.read_text(encoding="utf-8")
        if changed:
            path.write_text(text, encoding="utf-8")
        print(f"{path.name}: {'saved' if changed else 'unchanged'}", flush=True)


if __name__ == "__main__":
    main()
