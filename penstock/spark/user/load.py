"""The pipelines in a Python file: `penstock run FILE.py[:NAME]`."""

from __future__ import annotations

import importlib.util
import os
import sys
from types import ModuleType

from penstock.errors import InvalidOption, MissingExtra, UsageError
from penstock.spark.user.definition import line_of
from penstock.spark.user.pipeline import OwnPipeline


def load(place: str) -> OwnPipeline:
    """The pipeline in a file; behind a colon its name, which is needed where the file has several."""
    path, name = _divided(place)
    if not os.path.isfile(path):
        raise InvalidOption(f"there is no file {path}", hint="penstock run FILE.py[:NAME]")
    found = _pipelines(_imported(path))
    if not found:
        raise InvalidOption(f"{path} has no pipeline", hint="@penstock.pipeline(…) on a function makes one")
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if name in found:
        return found[name]
    there = ", ".join(found)
    if name is None:
        raise InvalidOption(f"{path} has several pipelines: {there}", hint=f"{path}:{next(iter(found))}")
    raise InvalidOption(f"{path} has no pipeline {name!r}", hint=f"it has {there}")


def _divided(place: str) -> tuple[str, str | None]:
    path, colon, name = place.rpartition(":")
    return (path, name) if colon and not os.path.exists(place) else (place, None)


def _imported(path: str) -> ModuleType:
    """The file as a module, which finds its neighbours as it does when Python runs it."""
    name = os.path.splitext(os.path.basename(path))[0]
    if name in sys.modules:  # a file may be called as something that is imported: json.py
        name = f"penstock_pipeline_{name}"
    spec = importlib.util.spec_from_file_location(name, os.path.abspath(path))
    if spec is None or spec.loader is None:
        raise InvalidOption(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    try:
        spec.loader.exec_module(module)
    except UsageError:  # a decorator that tells what is wrong with it
        del sys.modules[name]
        raise
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("pyspark"):
            raise MissingExtra("pyspark", "spark") from None
        raise UsageError(
            f"{path} cannot be loaded: {type(error).__name__}: {error}", hint=line_of(error, path)
        ) from error
    return module


def _pipelines(module: ModuleType) -> dict[str, OwnPipeline]:
    """The pipelines of a file by name; imported ones count only where it has none of its own."""
    every = {each.name: each for each in vars(module).values() if isinstance(each, OwnPipeline)}
    own = {name: each for name, each in every.items() if each.__module__ == module.__name__}
    return own or every
