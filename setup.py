"""Place the root folders under ``leveret`` and compile the kernels when that is possible.

LEVERET_COMPILE is ``auto`` (default: compile, fall back to pure Python when there is no C compiler
or no Cython), ``0`` (pure Python) or ``require`` (compile or fail).

There are two, of the codec and of the message store. An extension carries the SHA-256 of the sources
it was made from (``SOURCE_HASH``), so that ``leveret.core.compiled`` can tell a stale one. It is
therefore always made anew: time stamps alone do not tell whether the hash compiled in is still that
of the sources.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

NOT_OURS = {"leveret", "tests", "build"}
ROOTS = sorted(
    init.parent.name for init in Path().glob("*/__init__.py") if init.parent.name not in NOT_OURS
)
KERNELS = (Path("amqp/_kernel_c.pyx"), Path("msg_store/format/_kernel_c.pyx"))
TOP_LEVEL = sorted(Path("spark/_autoload").glob("*.py"))  # modules that Spark finds by their names
CHOICES = ("auto", "0", "require")
COMPILE = os.environ.get("LEVERET_COMPILE", "auto")
if COMPILE not in CHOICES:
    sys.exit(f"LEVERET_COMPILE is {COMPILE!r}, must be one of {', '.join(CHOICES)}")


def packages() -> list[str]:
    """Name every package, those inside the root folders too."""
    inits = (init for root in ROOTS for init in sorted(Path(root).rglob("__init__.py")))
    return ["leveret", *(".".join(("leveret", *init.parent.parts)) for init in inits)]


def kernel(source: Path) -> Extension:
    """Describe a compiled kernel."""
    sources = [source, *sorted(source.parent.glob("_kernel_c_*.pxi"))]
    source_hash = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    return Extension(
        ".".join(("leveret", *source.with_suffix("").parts)),
        [str(source)],
        depends=[str(path) for path in sources],
        define_macros=[("KERNEL_SOURCE_HASH", f'"{source_hash}"')],
        extra_compile_args=["-O2"] if os.name == "posix" else [],
    )


def in_c(source: Path) -> list[Extension]:
    """Turn a kernel into C; without Cython, or with one that cannot, there is none."""
    try:
        from Cython.Build import cythonize
        from Cython.Compiler.Errors import CompileError
    except ImportError:
        if COMPILE == "require":
            raise
        return []
    try:
        made: list[Extension] = cythonize([kernel(source)], force=True, build_dir="build/cython")
    except CompileError as error:
        if COMPILE == "require":
            raise
        print(f"leveret runs without its compiled kernel: {source}: {error}", file=sys.stderr)
        return []
    for extension in made:  # cythonize does not pass this one on
        extension.optional = COMPILE == "auto"
    return made


def extensions() -> list[Extension]:
    """Translate the kernels whose sources are there to C; none with LEVERET_COMPILE=0."""
    if COMPILE == "0":
        return []
    return [extension for source in KERNELS if source.exists() for extension in in_c(source)]


class BuildPy(build_py):
    """Puts the top-level modules beside the package; an editable install has none, and Spark would not find them."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for module in TOP_LEVEL:
                self.copy_file(str(module), str(Path(self.build_lib, module.name)))

    def get_source_files(self) -> list[str]:
        return [*super().get_source_files(), *map(str, TOP_LEVEL)]


setup(
    packages=packages(),
    package_dir={"leveret": "leveret", **{f"leveret.{root}": root for root in ROOTS}},
    cmdclass={"build_py": BuildPy},
    ext_modules=extensions(),
)
