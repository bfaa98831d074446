"""The choice between the two forms of the message's path: the modules as they are, and compiled by mypyc.

``setup.py`` compiles the modules of the path from their sources into ``leveret/_compiled`` when LEVERET_COMPILE is
``path``. They are found there before the sources only if this module says so: without it the sources run, whatever
lies in that folder. ``manifest.json`` beside them names the compiled modules, and the SHA-256 of each source that they
were made of. mypyc puts constants of the modules that a module imports into its code, so these are sources as well.

``LEVERET_COMPILED`` = ``0`` takes the sources, for a debugger or a profile; ``require`` fails without compiled modules;
by default they are taken if they are there and up to date.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from hashlib import sha256
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

PACKAGE: Final = Path(__file__).parents[1]
FOLDER: Final = "_compiled"
MANIFEST: Final = "manifest.json"


class CompiledFinder(MetaPathFinder):
    """Finds compiled modules by their names."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self.files: Final = files

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self.files.get(fullname)
        return None if file is None else spec_from_file_location(fullname, file)


def compiled_modules() -> frozenset[str]:
    """Return the names of the modules that run compiled in this process: those of the message's path, or none."""
    finders = [each for each in sys.meta_path if isinstance(each, CompiledFinder)]
    return frozenset(name for finder in finders for name in finder.files)


def form_of_path() -> str:
    """Return how the message's path runs, for operators: ``compiled`` or ``sources``."""
    return "compiled" if compiled_modules() else "sources"


def choose_form(package: Path = PACKAGE) -> None:
    """Have the compiled modules imported instead of their sources, if they are wanted and up to date.

    Raises:
        ImportError: they were demanded, and are missing or out of date.
        ConfigError: LEVERET_COMPILED has another value.
    """
    wanted = os.environ.get("LEVERET_COMPILED", "")
    if wanted not in {"", "0", "require"}:
        raise ConfigError(f"LEVERET_COMPILED is {wanted!r}, not 0 or require")
    if wanted == "0":
        return
    try:
        files = _files_of(package)
    except OSError:  # nothing was compiled, or the package is in a zip
        problem = "the message's path is not compiled: install Leveret with LEVERET_COMPILE=path"
    else:
        if files:
            sys.meta_path.insert(0, CompiledFinder(files))
            return
        problem = "the compiled message's path is older than its sources: install Leveret again, or remove _compiled"
        warnings.warn(problem, RuntimeWarning, stacklevel=2)
    if wanted == "require":
        raise ImportError(problem)


def _files_of(package: Path) -> dict[str, Path]:
    """Return the files of the compiled modules; none when they are out of date."""
    folder = package / FOLDER
    manifest = json.loads((folder / MANIFEST).read_bytes())
    for source, source_hash in manifest["sources"].items():
        file = package / source
        if not file.exists() or sha256(file.read_bytes()).hexdigest() != source_hash:
            return {}
    suffix = EXTENSION_SUFFIXES[0]
    files = {
        f"{package.name}.{module}": folder / f"{module.replace('.', '/')}{suffix}"
        for module in manifest["modules"]
    }
    return files if all(file.exists() for file in files.values()) else {}
