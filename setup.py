"""Place the root folders under ``leveret`` and compile the kernels and the message's path.

LEVERET_COMPILE is ``auto`` (default: compile both; where that is impossible the sources run, and the installed package
knows why), ``kernel`` (the same for the kernels alone), ``0`` (compile nothing) or ``require`` (compile both or fail).

There are three kernels, of the codec, of the message store and of the interpreter's arenas. An extension
carries the SHA-256 of the sources it was made from (``SOURCE_HASH``), so that ``leveret.core.compiled`` can
tell a stale one.

The message's path is compiled by mypyc from the modules as they are (``PATH``), in one group, so that a call
from one of them to another is a call in C. The extensions lie in ``leveret/_compiled``, where Python does
not look by itself; ``leveret.core.compiled_path`` takes them if they are up to date. Each module becomes a C file of
its own, and all processors compile. In a checkout only changed C files are compiled again.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
import re
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from setuptools import Distribution, Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import BaseError, CompileError

NOT_OURS = {"leveret", "tests", "build"}
ROOTS = sorted(
    init.parent.name for init in Path().glob("*/__init__.py") if init.parent.name not in NOT_OURS
)
KERNELS = (
    Path("amqp/_kernel_c.pyx"),
    Path("core/system/_kernel_c.pyx"),
    Path("msg_store/format/_kernel_c.pyx"),
)
TOP_LEVEL = sorted(Path("spark/_autoload").glob("*.py"))  # modules that Spark finds by their names
CHOICES = ("auto", "kernel", "0", "require")
COMPILE = os.environ.get("LEVERET_COMPILE", "auto")
if COMPILE not in CHOICES:
    sys.exit(f"LEVERET_COMPILE is {COMPILE!r}, must be one of {', '.join(CHOICES)}")
# Without modules of classes that mypyc does not take, such as those with a base of msgspec or Thespian
# (docs/decisions/0041-mypyc-on-the-path.md).
PATH = [
    "actors/actor.py",
    "actors/credit.py",
    "actors/gen_server.py",
    "actors/runtime/busy_wait.py",
    "actors/runtime/fair_queue.py",
    "actors/runtime/inbox.py",
    "actors/runtime/inline.py",
    "actors/runtime/ref.py",
    "actors/runtime/scheduler.py",
    "actors/runtime/timers.py",
    "amqp/heartbeat.py",
    "broker/channel/confirms.py",
    "broker/channel/consuming/deliveries.py",
    "broker/channel/consuming/unacked.py",
    "broker/channel/publishing/batch.py",
    "broker/channel/publishing/credit_flow.py",
    "broker/channel/publishing/message_route.py",
    "broker/channel/publishing/producers.py",
    "broker/channel/publishing/publish.py",
    "broker/channel/records.py",
    "broker/channel/routes.py",
    "broker/channel/session.py",
    "broker/channel/channel.py",
    "broker/channel/settlement_timeout.py",
    "broker/connection/alarms.py",
    "broker/connection/channel_table.py",
    "broker/connection/input.py",
    "broker/connection/pending_writes.py",
    "broker/connection/reading/ack_coalescing.py",
    "broker/connection/reading/publish_coalescing.py",
    "broker/connection/reading/read_control.py",
    "broker/connection/reading/resume_queue.py",
    "broker/connection/states.py",
    "broker/connection/writer.py",
    "broker/limiter.py",
    "broker/mail.py",
    "broker/queue/consumers/allotments.py",
    "broker/queue/consumers/capacity.py",
    "broker/queue/consumers/consumer.py",
    "broker/queue/consumers/consumers.py",
    "broker/queue/consumers/dispatch.py",
    "broker/queue/limits/expiry.py",
    "broker/queue/mailbox.py",
    "broker/queue/publishers/deduplication.py",
    "broker/queue/publishers/node_producers.py",
    "broker/queue/publishers/producers.py",
    "broker/queue/publishers/publishers.py",
    "broker/queue/amqqueue.py",
    "broker/queue/storage/store_writes.py",
    "broker/queue/turn_budget.py",
    "broker/remote/remote_gate.py",
    "broker/vhost/features.py",
    "core/batching.py",
    "core/clock.py",
    "core/entry.py",
    "core/limits.py",
    "core/small_set.py",
    "msg_store/client.py",
    "msg_store/format/append_log.py",
    "msg_store/format/journal_frames.py",
    "msg_store/format/journal_records.py",
    "msg_store/format/record_encoding.py",
    "msg_store/memtable/file_states.py",
    "msg_store/memtable/memtable.py",
    "msg_store/memtable/memtables.py",
    "msg_store/producers.py",
    "msg_store/reading/read_cache.py",
    "msg_store/store.py",
    "msg_store/threads/writers.py",
    "msg_store/transient/paged_queue.py",
    "msg_store/wal/backpressure.py",
    "msg_store/wal/driver.py",
    "msg_store/wal/flush.py",
    "msg_store/wal/group_commit.py",
    "msg_store/wal/journal.py",
    "msg_store/wal/pending.py",
    "msg_store/wal/producers.py",
    "msg_store/wal/segment_writer.py",
    "queue_backing/actor.py",
    "queue_backing/api.py",
    "queue_backing/index/row_window.py",
    "queue_backing/index/stored.py",
    "queue_backing/priority_queue.py",
    "queue_backing/proxy.py",
    "queue_backing/variable/columns.py",
    "queue_backing/variable/delta.py",
    "queue_backing/variable/limits.py",
    "queue_backing/variable/paged.py",
    "queue_backing/variable/pending_acks.py",
    "queue_backing/variable/queue.py",
    "queue_backing/variable/ram_target.py",
    "routing/topic_trie.py",
    "routing/work.py",
]
PATH_C = Path("build/path")  # the sources as mypyc must see them, and their C
COMPILED = "leveret._compiled"
FOLDER = COMPILED.replace(".", "/")
DESCRIBES = {"dist_info", "egg_info", "sdist"}  # commands that compile nothing
INSTALL_C = "a C compiler and Python's headers (Debian, Ubuntu: apt install gcc python3-dev; macOS: xcode-select --install)"


class CannotCompileError(Exception):
    """Says why this machine or this Python cannot compile, and what to do."""


def packages() -> list[str]:
    """Name every package, those inside the root folders too."""
    inits = (init for root in ROOTS for init in sorted(Path(root).rglob("__init__.py")))
    return ["leveret", *(".".join(("leveret", *init.parent.parts)) for init in inits)]


def try_the_compiler() -> None:
    """Compile a file that includes Python.h.

    Raises:
        CannotCompileError: that fails.
    """
    from distutils.ccompiler import new_compiler  # setuptools' own: it is imported
    from distutils.sysconfig import customize_compiler

    compiler = new_compiler()
    customize_compiler(compiler)
    include_dirs = sorted({sysconfig.get_path("include"), sysconfig.get_path("platinclude")})
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder, "probe.c")
        probe.write_text("#include <Python.h>\nint leveret_probe(void) { return 0; }\n")
        try:
            compiler.compile([str(probe)], output_dir=folder, include_dirs=include_dirs)
        except (BaseError, CompileError) as error:
            raise CannotCompileError(f"nothing is compiled without {INSTALL_C}: {error}") from error


def kernel(source: Path) -> Extension:
    """Describe a compiled kernel."""
    sources = [source, *sorted(source.parent.glob("_kernel_c_*.pxi"))]
    source_hash = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    return Extension(
        ".".join(("leveret", *source.with_suffix("").parts)),
        [str(source)],
        depends=[str(path) for path in sources],
        define_macros=[("KERNEL_SOURCE_HASH", f'"{source_hash}"')],
        extra_compile_args=["-O2", "-g0"] if os.name == "posix" else [],
    )


def kernel_in_c(source: Path) -> list[Extension]:
    """Turn a kernel into C.

    Raises:
        CannotCompileError: Cython is missing, or cannot read the source.
    """
    try:
        from Cython.Build import cythonize
        from Cython.Compiler.Errors import CompileError
    except ImportError as error:
        raise CannotCompileError(f"no kernel is compiled without Cython: {error}") from error
    try:  # always anew: time stamps do not tell whether the hash compiled in is that of the sources
        made: list[Extension] = cythonize(
            [kernel(source)], force=True, build_dir="build/cython", quiet=True
        )
    except CompileError as error:
        raise CannotCompileError(f"{source} is not compiled: {error}") from error
    return made


def path_in_c() -> list[Extension]:
    """Turn the modules of the message's path into C.

    mypyc names a module by the folders above its file, so it works on a copy laid out as the package.

    Raises:
        CannotCompileError: mypyc is missing, or cannot read the modules.
    """
    try:
        from mypyc.build import mypycify
    except ImportError as error:
        raise CannotCompileError(
            f"the message's path is not compiled without mypy: {error}"
        ) from error

    copy_sources()
    with contextlib.chdir(PATH_C):
        try:
            made = mypycify(
                ["--config-file=mypy.ini", *(f"leveret/{module}" for module in PATH)],
                group_name=f"{COMPILED}.path",
                opt_level="2",
                debug_level="0",
                multi_file=True,
                target_dir="c",
            )
        except SystemExit as error:
            raise CannotCompileError(
                "mypyc cannot compile the message's path; with LEVERET_COMPILE=require the build shows why"
            ) from error
    for extension in made:
        extension.sources = list(map(in_path_c, extension.sources))
        extension.depends = list(map(in_path_c, extension.depends))
        headers = (*extension.include_dirs, f"c/{FOLDER}")  # of the group, whose name has a dot
        extension.include_dirs = list(map(in_path_c, headers))
        # With this visibility a call from one module to another is a jump, not a look-up in a table.
        options = ("-Wno-error", "-fvisibility=hidden") if os.name == "posix" else ()
        extension.extra_compile_args = [*extension.extra_compile_args, *options]
        if not extension.name.startswith(COMPILED):
            extension.name = extension.name.replace("leveret", COMPILED, 1)
    return made


def in_path_c(path: str) -> str:
    """Return a path of mypyc's, which ran in ``PATH_C``, as it is from here."""
    return path if os.path.isabs(path) else str(PATH_C / path)


def copy_sources() -> None:
    """Lay the modules out for mypyc; files that have not changed keep their time, by which it knows them."""
    wanted = {PATH_C / path: path for path in Path("leveret").glob("*.py")}
    for root in ROOTS:
        wanted |= {PATH_C / "leveret" / path: path for path in Path(root).rglob("*.py")}
    for path in PATH_C.glob("leveret/**/*.py"):
        if path not in wanted:
            path.unlink()
    for path, source in wanted.items():
        content = source.read_bytes()
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    Path(PATH_C, "mypy.ini").write_text("[mypy]\nignore_missing_imports = True\n")


def extensions() -> tuple[list[Extension], str]:
    """Turn the sources into C that LEVERET_COMPILE asks for; where some cannot be, say why."""
    if COMPILE == "0" or DESCRIBES.intersection(sys.argv):
        return [], ""
    made: list[Extension] = []
    why = ""
    try:
        try_the_compiler()
        for source in filter(Path.exists, KERNELS):
            made += kernel_in_c(source)
        if COMPILE != "kernel":
            made += path_in_c()
    except CannotCompileError as error:
        if COMPILE == "require":
            sys.exit(f"leveret: {error}")
        why = str(error)
    for extension in made:  # BuildExt answers for the path
        extension.optional = COMPILE != "require" and not extension.name.startswith(COMPILED)
    return made, why


def sources_of_path() -> dict[str, str]:
    """Return the hash of each source of the path, as it was copied: its modules, and those that they import."""
    package = PATH_C / "leveret"
    found = set(PATH)
    for module in PATH:
        for node in ast.walk(ast.parse((package / module).read_bytes())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("leveret."):
                at = Path(*node.module.split(".")[1:])
                files = [at.with_suffix(".py"), *(at / f"{name.name}.py" for name in node.names)]
                found |= {each.as_posix() for each in files if (package / each).exists()}
    return {
        each: hashlib.sha256((package / each).read_bytes()).hexdigest() for each in sorted(found)
    }


@cache
def headers_hash(folders: tuple[str, ...]) -> bytes:
    """Return the hash of the headers in folders."""
    headers = (header for folder in folders for header in sorted(Path(folder).rglob("*.h")))
    return hashlib.sha256(b"".join(header.read_bytes() for header in headers)).digest()


def remove_other_files(root: Path, made: Iterable[str]) -> None:
    """Remove the compiled path and its manifest of an earlier build, but for the files that this one makes again."""
    stay = {root / file for file in made}
    for file in (root / FOLDER).rglob("*.*"):
        if file not in stay:
            file.unlink()


class BuildExt(build_ext):
    """Compiles on all processors, and puts the compiled path into a folder of its own, with a manifest.

    The manifest names the modules and the hashes of their sources, or says why there are none.
    """

    def run(self) -> None:
        path = [each.name for each in self.extensions if each.name.startswith(COMPILED)]
        made = [self.get_ext_filename(name) for name in path]
        is_in_place = self.inplace or self.editable_mode
        roots = [Path(self.build_lib), Path()][: 1 + is_in_place]
        for root in roots:
            remove_other_files(root, made)
            for file in made:
                (root / file).parent.mkdir(parents=True, exist_ok=True)
        self.parallel, self.force = os.cpu_count(), True  # links anew; objects stay
        why = WHY_NOT
        try:
            super().run()
        except (BaseError, CompileError) as error:
            if COMPILE == "require":
                raise
            why = f"the C compiler cannot compile the message's path: {error}"
            for root in roots:
                remove_other_files(root, [])
        if why:
            print(f"leveret: {why}", file=sys.stderr)
        if path or why:
            modules = [] if why else [each.removesuffix(".py").replace("/", ".") for each in PATH]
            sources = {} if why else sources_of_path()
            manifest = {"modules": modules, "sources": sources, "why_not": why}
            for root in roots:
                file = root / FOLDER / "manifest.json"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps(manifest, indent=1))

    def build_extensions(self) -> None:
        self.compiler.compile = self._compile_in_parallel(self.compiler.compile)
        super().build_extensions()

    def _compile_in_parallel(self, compile_: Callable[..., list[str]]) -> Callable[..., list[str]]:
        """Return a form of the compiler's method that takes a processor per source.

        An object stays if its source, the headers and the options have not changed.
        """

        def compile_all(sources: Iterable[str], output_dir: str, **options: Any) -> list[str]:
            headers = headers_hash(tuple(options["include_dirs"]))
            compiler = getattr(self.compiler, "compiler_so", self.compiler.compiler_type)
            how = [
                compiler,
                *(each for each in sorted(options.items()) if each[0] != "include_dirs"),
            ]

            def compile_one(source: str) -> str:
                (made,) = self.compiler.object_filenames([source], output_dir=output_dir)
                content = Path(source).read_bytes() + headers + repr(how).encode()
                made_from, key = Path(f"{made}.made_from"), hashlib.sha256(content).hexdigest()
                if not (
                    Path(made).exists() and made_from.exists() and made_from.read_text() == key
                ):
                    made_from.unlink(missing_ok=True)
                    compile_([source], output_dir=output_dir, **options)
                    made_from.write_text(key)
                return made

            with ThreadPoolExecutor(os.cpu_count()) as processors:
                return list(processors.map(compile_one, sources))

        return compile_all


class BuildPy(build_py):
    """Puts the top-level modules beside the package; an editable install has none, and Spark would not find them."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for module in TOP_LEVEL:
                self.copy_file(str(module), str(Path(self.build_lib, module.name)))

    def get_source_files(self) -> list[str]:
        return [*super().get_source_files(), *map(str, TOP_LEVEL)]


class LeveretDistribution(Distribution):
    """Has ``build_ext`` run also where nothing can be compiled, since the manifest then says why."""

    def has_ext_modules(self) -> bool:
        return bool(EXTENSIONS or WHY_NOT)


def readme() -> str:
    """Return README.md with absolute links: PyPI's page is not beside the files."""
    files = tomllib.loads(Path("pyproject.toml").read_text())["project"]["urls"]["Homepage"]
    return re.sub(r"\]\((?!https?:|#)", f"]({files}/blob/main/", Path("README.md").read_text())


EXTENSIONS, WHY_NOT = extensions()
setup(
    distclass=LeveretDistribution,
    packages=packages(),
    package_dir={"leveret": "leveret", **{f"leveret.{root}": root for root in ROOTS}},
    cmdclass={"build_py": BuildPy, "build_ext": BuildExt},
    ext_modules=EXTENSIONS,
    long_description=readme(),
    long_description_content_type="text/markdown",
)
