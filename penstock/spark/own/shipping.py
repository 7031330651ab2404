"""The user's code on its way to Spark's workers.

Python sends a function or class of a module by its name, and a worker imports the module. A worker does
not know the folder of the user's file, on a cluster it may not even have it. So these modules are sent
by value: the file of the pipeline, and what it imports from its own folder.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable
from types import ModuleType
from typing import Any

from penstock.errors import MissingExtra

#: Workers have these; a second copy of their classes would not equal the first.
_NEVER = ("__main__", "penstock", "pyspark_penstock", "pyspark")


def ship(function: Callable[..., Any]) -> None:
    """Have the module of a function, and its neighbours, sent to workers by value.

    Raises `MissingExtra` without PySpark.
    """
    try:
        from pyspark import cloudpickle
    except ImportError:
        raise MissingExtra("pyspark", "spark") from None
    for module in _modules(function.__module__):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _modules(name: str) -> list[ModuleType]:
    home = sys.modules.get(name)
    if home is None or name == "__main__":  # Python sends these by value anyway
        return []
    folder = os.path.dirname(os.path.abspath(home.__file__ or ""))
    if _is_installed(folder):
        return []
    neighbours = [module for module in list(sys.modules.values()) if _is_within(module, folder)]
    return [home, *(each for each in neighbours if each is not home)]


def _is_installed(folder: str) -> bool:
    return any(_starts(folder, place) for key, place in sysconfig.get_paths().items() if key.endswith("lib"))


def _is_within(module: ModuleType, folder: str) -> bool:
    path = getattr(module, "__file__", None)
    if not path or module.__name__.partition(".")[0] in _NEVER:
        return False
    place = os.path.abspath(path)
    return _starts(place, folder) and not _is_installed(place)


def _starts(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + os.sep)
