"""The book's exercises: what a reader answers is checked, and the message helps.
One file a chapter.
"""

import importlib
import pkgutil

from mha_widgets.exercises._checking import Verdict, catalog, check
from mha_widgets.exercises._quiz import quiz

for _entry in pkgutil.iter_modules(__path__):
    if not _entry.name.startswith("_"):
        importlib.import_module(f"{__name__}.{_entry.name}")

__all__ = ["Verdict", "catalog", "check", "quiz"]
