"""The choice between the two implementations of a kernel, pure Python and compiled.

A package's module ``kernel`` has the contract of a kernel; ``_kernel_py`` and ``_kernel_c`` beside it implement it.
That of ``core.system`` is compiled only (``huge_pages.py``).
``LEVERET_KERNEL`` = ``c`` or ``py`` chooses for all kernels; by default the compiled kernel is used if it exists and is
up to date.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

from leveret.core.errors import ConfigError


def choose_kernel(package: str, folder: Path) -> tuple[str, Any]:
    """Import one of the two kernels of a package; return ``c`` or ``py``, and the module.

    Raises:
        ImportError: the compiled kernel was demanded, and is missing or out of date.
        ConfigError: LEVERET_KERNEL has another value.
    """
    kernel = compiled_kernel(package, folder)
    if kernel is not None:
        return "c", kernel
    return "py", import_module(f"{package}._kernel_py")


def compiled_kernel(package: str, folder: Path) -> Any | None:
    """Import the compiled kernel of a package; None: it is not wanted, is missing or is out of date.

    Raises:
        ImportError, ConfigError: as ``choose_kernel``.
    """
    wanted = os.environ.get("LEVERET_KERNEL", "")
    if wanted not in {"", "c", "py"}:
        raise ConfigError(f"LEVERET_KERNEL is {wanted!r}, not c or py")
    if wanted != "py":
        try:
            return _compiled(package, folder)
        except ImportError:
            if wanted == "c":
                raise
    return None


def _compiled(package: str, folder: Path) -> Any:
    """Import the compiled kernel; ImportError: it is missing, or of another source."""
    module = import_module(f"{package}._kernel_c")
    source = folder / "_kernel_c.pyx"
    parts = (source, *sorted(folder.glob("_kernel_c_*.pxi")))
    if source.exists() and _hash_of(parts) != module.SOURCE_HASH:
        stale = f"{package}._kernel_c is older than its source: install Leveret again"
        warnings.warn(stale, RuntimeWarning, stacklevel=3)
        raise ImportError(stale)
    return module


def _hash_of(sources: Iterable[Path]) -> str:
    """Return the hash that ``setup.py`` compiles in as SOURCE_HASH."""
    return sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
