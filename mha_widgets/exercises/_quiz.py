"""Multiple-choice questions, alive in a notebook and on a page."""

from __future__ import annotations

from pathlib import Path


def quiz(path: str | Path) -> None:
    """Show the questions of a file with JupyterQuiz.

    Its search for MathJax on another site is left out, and the element that it leaves open is
    closed.

    Args:
        path: a JSON file of questions without formulas, as https://github.com/jmshea/jupyterquiz
            describes it.

    Raises:
        ModuleNotFoundError: JupyterQuiz is not installed: ``pip install jupyterquiz``.
    """
    from IPython.display import display
    from IPython.utils.capture import capture_output
    from jupyterquiz import display_quiz

    with capture_output(stdout=False, stderr=False) as captured:
        display_quiz(str(path), shuffle_answers=False)
    for output in captured.outputs:
        shown = {
            kind: text.replace("typeof MathJax != 'undefined'", "false")
            for kind, text in output.data.items()
        }
        if "text/html" in shown:
            shown["text/html"] += "</div>"
        display(shown, raw=True)
