"""The choice between the two forms of the message's path: the modules as they are, and compiled by mypyc.

``setup.py`` compiles the modules of the path from their sources into ``leveret/_compiled``. They are found there before
the sources only if this module says so: without it the sources run, whatever lies in that folder. ``manifest.json``
beside them names the compiled modules, and the SHA-256 of each source that they were made of. mypyc puts constants of
the modules that a module imports into its code, so these are sources as well. Where nothing could be compiled, the
manifest says why; where nothing was to be compiled (LEVERET_COMPILE=0 or kernel), there is none.

``LEVERET_COMPILED`` = ``0`` takes the sources, for a debugger or a profile; ``require`` fails without compiled modules;
by default they are taken if they are there and up to date.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from contextlib import suppress
from functools import cached_property
from hashlib import sha256
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict

from leveret.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

PACKAGE: Final = Path(__file__).parents[1]
FOLDER: Final = "_compiled"
MANIFEST: Final = "manifest.json"
STALE: Final = (
    "the compiled message's path is older than its sources: make or pip install compiles it again"
)


class Manifest(TypedDict):
    """``manifest.json``: modules without the package's name, hashes by file, and why there are none."""

    modules: list[str]
    sources: dict[str, str]
    why_not: str


class CompiledFinder(MetaPathFinder):
    """Finds compiled modules by their names, unless they are out of date; that is seen at the first of them."""

    def __init__(self, package: Path, manifest: Manifest) -> None:
        self._package: Final = package
        self._manifest: Final = manifest
        self._names: Final = frozenset(f"{package.name}.{each}" for each in manifest["modules"])

    @cached_property
    def files(self) -> dict[str, str]:
        """The files of the compiled modules; none when they are out of date, with a warning."""
        files = _files_of(self._package, self._manifest)
        if not files:
            warnings.warn(STALE, RuntimeWarning, stacklevel=3)
        return files

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._names or fullname not in self.files:
            return None
        return spec_from_file_location(fullname, self.files[fullname])


def compiled_modules() -> frozenset[str]:
    """Return the names of the modules that run compiled in this process: those of the message's path, or none."""
    finders = [each for each in sys.meta_path if isinstance(each, CompiledFinder)]
    return frozenset(name for finder in finders for name in finder.files)


def form_of_path() -> str:
    """Return how the message's path runs, for operators: ``compiled`` or ``sources``."""
    return "compiled" if compiled_modules() else "sources"


def why_sources(package: Path = PACKAGE) -> str:
    """Return why nothing could be compiled at the installation; an empty text where it could, or was not to be."""
    if os.environ.get("LEVERET_COMPILED"):
        return ""
    try:
        return _manifest(package)["why_not"]
    except OSError:
        return ""


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
    problem = "the message's path is not compiled: install Leveret with LEVERET_COMPILE=require"
    with suppress(OSError):  # nothing was to be compiled, or the package is in a zip
        manifest = _manifest(package)
        problem = manifest["why_not"] or STALE
        if manifest["modules"] and (wanted != "require" or _files_of(package, manifest)):
            sys.meta_path.insert(0, CompiledFinder(package, manifest))
            return
    if wanted == "require":
        raise ImportError(problem)


def _manifest(package: Path) -> Manifest:
    manifest: Manifest = json.loads((package / FOLDER / MANIFEST).read_bytes())
    return manifest


def _files_of(package: Path, manifest: Manifest) -> dict[str, str]:
    """Return the files of the compiled modules; none when they are out of date."""
    try:
        for source, source_hash in manifest["sources"].items():
            with open(f"{package}/{source}", "rb") as file:
                if sha256(file.read()).hexdigest() != source_hash:
                    return {}
    except OSError:
        return {}
    folder, suffix = f"{package}/{FOLDER}", EXTENSION_SUFFIXES[0]
    files = {
        f"{package.name}.{module}": f"{folder}/{module.replace('.', '/')}{suffix}"
        for module in manifest["modules"]
    }
    return files if all(map(os.path.exists, files.values())) else {}
