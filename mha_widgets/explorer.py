"""What an explorer is: controls, and for each state of them a view.

The maths makes a record, the record makes a figure, and a host shows the figure: ``hosts.live`` in
Jupyter, ``hosts.page`` in a web page without a kernel.
"""

from __future__ import annotations

import itertools
import os
from abc import ABCMeta, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import plotly.graph_objects as go
import traitlets

from mha_widgets.view import Control, Fact, View

HOST = "MHA_WIDGETS_HOST"  # the environment variable that a book sets to "page" while it is built


class _Observable(traitlets.MetaHasTraits, ABCMeta):
    """What is both observable and abstract."""


class Explorer(traitlets.HasTraits, metaclass=_Observable):
    """A question about attention that the reader answers by moving controls.

    A subclass sets ``title`` and ``prompt``, fills ``controls`` in its constructor, and writes
    ``compute``, ``draw``, ``facts`` and ``code``. Shown at the end of a notebook cell it is live;
    in a built book it needs no kernel.

    >>> from mha_widgets import explorers
    >>> masks = explorers.Masks()
    >>> masks
    Masks explorer: attn_mask, padding, padding_side, window, mask_type, empty_row, row
    >>> masks.view(attn_mask="causal", row=0).facts[0][0].text
    '“the”'

    What a live explorer shows follows ``set``, and ``state`` follows its controls:

    >>> masks.set(attn_mask="window", row=3)
    >>> masks.state["row"]
    3
    >>> masks.observe(lambda change: print(change["new"]["row"]), names="state")
    >>> masks.set(row=4)
    4

    Attributes:
        controls: the controls by name, in order.
        state: what each control is set to. Observe it as any trait of traitlets, by
            ``names="state"``: the controls are no traits of their own, so ``observe(f, "row")``
            would never call. Change it by ``set``.
        page_controls: the controls that stay alive on a page without a kernel; all if none are
            named.
    """

    title: ClassVar[str]
    prompt: str
    controls: Mapping[str, Control]
    state = traitlets.Dict(read_only=True)
    page_controls: tuple[str, ...] = ()
    _live: Any = None

    @abstractmethod
    def compute(self, **state: Any) -> Any:
        """Return the record of one complete state: named arrays and facts, no pictures."""

    @abstractmethod
    def draw(self, record: Any) -> go.Figure:
        """Draw a record."""

    @abstractmethod
    def facts(self, record: Any) -> tuple[Fact, ...]:
        """Return what a reader should look at in a record."""

    @abstractmethod
    def code(self, **state: Any) -> str:
        """Return a complete program that reproduces what a complete state shows."""

    def disabled(self, **state: Any) -> Mapping[str, str]:
        """Return the controls that do nothing in a complete state, each with the reason."""
        return {}

    @traitlets.default("state")
    def _defaults(self) -> dict[str, Any]:
        return {name: control.default for name, control in self.controls.items()}

    def set(self, **changes: Any) -> None:
        """Set controls; every live view of this explorer follows.

        Raises:
            TypeError: a change names no control.
            ValueError: a change sets a control to a value that it doesn't have.
        """
        self.set_trait("state", self.state | self._checked(changes))

    def complete(self, **changes: Any) -> dict[str, Any]:
        """Return a complete state: defaults, the changes, and disabled controls at their defaults.

        Raises:
            TypeError: a change names no control.
            ValueError: a change sets a control to a value that it doesn't have.
        """
        state = self._defaults() | self._checked(changes)
        return state | {name: self.controls[name].default for name in self.disabled(**state)}

    def _checked(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        checked = {}
        for name, value in changes.items():
            if name not in self.controls:
                raise TypeError(
                    f"{self.name} has no control {name!r}; it has"
                    f" {', '.join(self.controls) or 'none'}."
                )
            values = self.controls[name].values
            if value not in values:
                raise ValueError(
                    f"{self.name} got {name}={value!r}; {name} is one of"
                    f" {', '.join(map(repr, values))}."
                )
            # the control's own 1, where 1.0 or True came
            checked[name] = values[values.index(value)]
        return checked

    def states(self, names: Iterable[str] = ()) -> Iterator[dict[str, Any]]:
        """Yield every combination of the values of these controls, or of all;
        the last moves fastest.

        The other controls are as they are set.
        """
        names = tuple(names) or tuple(self.controls)
        for values in itertools.product(*(self.controls[name].values for name in names)):
            yield self.state | dict(zip(names, values, strict=True))

    def view(self, **changes: Any) -> View:
        """Return what is shown when these controls are
        changed and the others are at their defaults.

        Raises:
            TypeError: a change names no control.
            ValueError: a change sets a control to a value that it doesn't have, or the state
                makes no sense; the message says why.
        """
        state = self.complete(**changes)
        record = self.compute(**state)
        disabled = self.disabled(**(state | changes))
        return View(self.draw(record), self.facts(record), self.code(**state), disabled)

    @property
    def name(self) -> str:
        """The explorer's name in the catalogue and in ``data-explorer``."""
        return type(self).__name__

    def to_html(self, include_plotlyjs: bool | str | None = None) -> str:
        """Return the explorer as a part of a page.

        Args:
            include_plotlyjs: None leaves style, script and plotly.js to the page around, as the
                extension of a book puts them there. All else puts style and script into the part,
                and plotly.js as :meth:`write_html` does:
                ``HTML(explorer.to_html(include_plotlyjs=True))``, with ``IPython.display.HTML``, is
                alive wherever the notebook is exported to.
        """
        from mha_widgets.hosts import page

        return (
            page.fragment(self) if include_plotlyjs is None else page.part(self, include_plotlyjs)
        )

    def write_html(self, path: str | Path, include_plotlyjs: bool | str = True) -> None:
        """Write the explorer as a page of its own, which works from disk and without a kernel.

        Args:
            path: the file to write.
            include_plotlyjs: as in ``plotly.io.write_html``: True puts plotly.js into the file (4.8
                MB), "cdn" fetches it when the page is opened, "directory" expects ``plotly.min.js``
                beside the file and puts it there, a string that ends in ".js" is used as its
                address, and False leaves it to the page around.
        """
        from mha_widgets.hosts import page

        page.write(self, Path(path), include_plotlyjs)

    def __repr__(self) -> str:
        return f"{self.name} explorer: {', '.join(self.controls)}"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        plain = {"text/plain": repr(self)}
        if os.environ.get(HOST) == "page":
            return {"text/html": self.to_html()} | plain
        from mha_widgets.hosts import live

        self._live = self._live or live.Live(self)  # shown again, it is another view of the same
        return self._live.widget._repr_mimebundle_() | plain
