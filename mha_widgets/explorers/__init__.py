"""The explorers, one file each. The catalogue is this folder."""

import importlib
import pkgutil

from mha_widgets.explorer import Explorer


def catalog() -> dict[str, type[Explorer]]:
    """Return every explorer's class by its name, in alphabetical order.

    >>> list(catalog())[:4]
    ['Attention', 'BatchFirst', 'CapturedMaps', 'DotProduct']
    """
    return dict(sorted(_CLASSES.items()))


def _classes() -> dict[str, type[Explorer]]:
    found = {}
    for entry in pkgutil.iter_modules(__path__):
        if not entry.name.startswith("_"):
            module = importlib.import_module(f"{__name__}.{entry.name}")
            found |= {
                name: value
                for name, value in vars(module).items()
                if isinstance(value, type) and issubclass(value, Explorer) and value.__module__ == module.__name__
            }
    return found


_CLASSES = _classes()
globals().update(_CLASSES)
__all__ = ["catalog", *sorted(_CLASSES)]
