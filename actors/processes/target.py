"""Targets: a class or function to run in another process is named by its import path, not sent."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from types import FunctionType, ModuleType
from typing import Any

from leveret.actors.links.sendable import HOSTED_MAIN, MAIN
from leveret.core.errors import ActorError

Target = list[str]  # module, file (for the program itself) or "", name in the module


def target_of(wanted: Any) -> Target:
    """Name a class or function, given as itself or as ``"package.module:name"``.

    Raises:
        ActorError: another process could not import it.
    """
    if isinstance(wanted, str):
        module, colon, name = wanted.partition(":")
        if not (module and colon and name):
            raise ActorError(f"{wanted!r} is not of the form 'package.module:name'")
        return [module, "", name]
    if not isinstance(wanted, type | FunctionType):
        raise ActorError(f"a process runs a class, a function or a name, not {wanted!r}")
    module, name = wanted.__module__, wanted.__qualname__
    if "<" in name:
        raise ActorError(
            f"{name} is not at the top of its module: another process cannot import it"
        )
    if module in (MAIN, HOSTED_MAIN):
        return _in_the_program(name)
    return [module, "", name]


def _in_the_program(name: str) -> Target:
    """Name something in the program that was started."""
    main = sys.modules.get(HOSTED_MAIN) or sys.modules[MAIN]
    spec = main.__spec__
    if spec is not None and main.__name__ == MAIN:  # python -m
        return [spec.name, "", name]
    file = getattr(main, "__file__", None)
    if file is None:
        raise ActorError(f"{name} was typed in: another process cannot import it")
    return [MAIN, os.path.abspath(file), name]


def load(target: Target) -> Any:
    """Import the class or function that ``target_of`` has named.

    Raises:
        Exception: whatever the import raises.
    """
    module_name, file, name = target
    found: Any = _program(file) if file else importlib.import_module(module_name)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _program(file: str) -> ModuleType:
    """Import the parent's program; code under ``if __name__ == "__main__"`` does not run."""
    if HOSTED_MAIN in sys.modules:
        return sys.modules[HOSTED_MAIN]
    spec = importlib.util.spec_from_file_location(HOSTED_MAIN, file)
    if spec is None or spec.loader is None:
        raise ActorError(f"{file} is not a Python program")
    module = importlib.util.module_from_spec(spec)
    sys.modules[HOSTED_MAIN] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[HOSTED_MAIN]
        raise
    return module
