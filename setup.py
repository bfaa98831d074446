"""Place the root folders under ``leveret`` and compile the codec kernel when that is possible.

LEVERET_COMPILE is ``auto`` (default: compile, fall back to pure Python when there is no C compiler
or no Cython), ``0`` (pure Python) or ``require`` (compile or fail).
"""

from __future__ import annotations

import os
from pathlib import Path

from setuptools import Extension, setup

NOT_OURS = {"leveret", "tests", "build"}
ROOTS = sorted(
    init.parent.name for init in Path().glob("*/__init__.py") if init.parent.name not in NOT_OURS
)
COMPILE = os.environ.get("LEVERET_COMPILE", "auto")


def packages() -> list[str]:
    """Name every package, those inside the root folders too."""
    inits = (init for root in ROOTS for init in sorted(Path(root).rglob("__init__.py")))
    return ["leveret", *(".".join(("leveret", *init.parent.parts)) for init in inits)]


def extensions() -> list[Extension]:
    """Build the Cython kernel, ``amqp/_kernel_c.pyx``."""
    source = Path("amqp/_kernel_c.pyx")
    if COMPILE == "0" or not source.exists():
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        if COMPILE == "require":
            raise
        return []
    kernel = Extension(
        "leveret.amqp._kernel_c", [str(source)], optional=COMPILE != "require"
    )
    return cythonize([kernel], language_level=3)


setup(
    packages=packages(),
    package_dir={"leveret": "leveret", **{f"leveret.{root}": root for root in ROOTS}},
    ext_modules=extensions(),
)
