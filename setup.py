"""Place the root folders under ``leveret``, compile the kernels when that is possible, and the message's path if asked.

LEVERET_COMPILE is ``auto`` (default: compile the kernels, fall back to pure Python when there is no C
compiler or no Cython), ``0`` (pure Python), ``require`` (compile the kernels or fail) or ``path`` (the
same, and compile the message's path too).

There are three kernels, of the codec, of the message store and of the interpreter's arenas. An extension
carries the SHA-256 of the sources it was made from (``SOURCE_HASH``), so that ``leveret.core.compiled`` can
tell a stale one. It is therefore always made anew: time stamps alone do not tell whether the hash compiled
in is still that of the sources.

The message's path is compiled by mypyc from the modules as they are (``PATH``), in one group, so that a call
from one of them to another is a call in C. The extensions lie in ``leveret/_compiled``, where Python does
not look by itself; ``leveret.core.compiled_path`` takes them if they are up to date.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

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
CHOICES = ("auto", "0", "require", "path")
COMPILE = os.environ.get("LEVERET_COMPILE", "auto")
if COMPILE not in CHOICES:
    sys.exit(f"LEVERET_COMPILE is {COMPILE!r}, must be one of {', '.join(CHOICES)}")
# Without modules of classes that mypyc does not take: of actors, because Thespian's class is their base, and of calls,
# because msgspec's is (docs/decisions/0041-mypyc-on-the-path.md).
PATH = [
    "actors/credit.py",
    "actors/runtime/busy_wait.py",
    "actors/runtime/cell.py",
    "actors/runtime/inbox.py",
    "actors/runtime/inline.py",
    "actors/runtime/ref.py",
    "actors/runtime/scheduler.py",
    "actors/runtime/timers.py",
    "actors/runtime/turns.py",
    "amqp/heartbeat.py",
    "broker/channel/confirms.py",
    "broker/channel/consuming/deliveries.py",
    "broker/channel/consuming/unacked.py",
    "broker/channel/publishing/publish.py",
    "broker/channel/records.py",
    "broker/channel/routes.py",
    "broker/channel/session.py",
    "broker/channel/traffic.py",
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
    "broker/delivery_gate.py",
    "broker/mail.py",
    "broker/queue/consumers/allotments.py",
    "broker/queue/consumers/capacity.py",
    "broker/queue/consumers/consumer.py",
    "broker/queue/consumers/consumers.py",
    "broker/queue/consumers/dispatch.py",
    "broker/queue/limits/expiry.py",
    "broker/queue/mailbox.py",
    "broker/queue/publishers/numbered.py",
    "broker/queue/publishers/publishers.py",
    "broker/queue/queue.py",
    "broker/queue/storage/store_writes.py",
    "broker/queue/turn_budget.py",
    "broker/remote_gate.py",
    "broker/vhost/features.py",
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
    "queue_backing/api.py",
    "queue_backing/housekeeping.py",
    "queue_backing/index/row_window.py",
    "queue_backing/index/stored.py",
    "queue_backing/priority_queue.py",
    "queue_backing/proxy.py",
    "queue_backing/store_mail.py",
    "queue_backing/variable/columns.py",
    "queue_backing/variable/delta.py",
    "queue_backing/variable/fetch.py",
    "queue_backing/variable/limits.py",
    "queue_backing/variable/paged.py",
    "queue_backing/variable/paging.py",
    "queue_backing/variable/pending_acks.py",
    "queue_backing/variable/queue.py",
    "queue_backing/variable/ram_target.py",
    "routing/topic_trie.py",
    "routing/work.py",
]
PATH_C = Path("build/path")  # the sources as mypyc must see them, and their C
COMPILED = "leveret._compiled"
DESCRIBES = {"dist_info", "egg_info", "sdist"}  # commands that compile nothing


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
        extra_compile_args=["-O2", "-g0"] if os.name == "posix" else [],
    )


def in_c(source: Path) -> list[Extension]:
    """Turn a kernel into C; without Cython, or with one that cannot, there is none."""
    try:
        from Cython.Build import cythonize
        from Cython.Compiler.Errors import CompileError
    except ImportError:
        if COMPILE != "auto":
            raise
        return []
    try:
        made: list[Extension] = cythonize([kernel(source)], force=True, build_dir="build/cython")
    except CompileError as error:
        if COMPILE != "auto":
            raise
        print(f"leveret runs without its compiled kernel: {source}: {error}", file=sys.stderr)
        return []
    for extension in made:  # cythonize does not pass this one on
        extension.optional = COMPILE == "auto"
    return made


def path_in_c() -> list[Extension]:
    """Turn the modules of the message's path into C.

    mypyc names a module by the folders above its file, so it works on a copy laid out as the package.
    """
    from mypyc.build import mypycify

    shutil.rmtree(PATH_C, ignore_errors=True)
    shutil.copytree("leveret", PATH_C / "leveret", ignore=lambda *_: ROOTS)
    for root in ROOTS:
        shutil.copytree(root, PATH_C / "leveret" / root, ignore=shutil.ignore_patterns("*.so"))
    Path(PATH_C, "mypy.ini").write_text("[mypy]\nignore_missing_imports = True\n")
    with contextlib.chdir(PATH_C):
        made = mypycify(
            ["--config-file=mypy.ini", *(f"leveret/{module}" for module in PATH)],
            group_name=f"{COMPILED}.path",
            opt_level="2",
            debug_level="0",
            target_dir="c",
        )
    for extension in made:
        extension.sources = [str(PATH_C / source) for source in extension.sources]
        extension.depends = []
        # A call from one module to another is a jump then, not a look-up in a table.
        if os.name == "posix":
            extension.extra_compile_args.append("-fvisibility=hidden")
        extension.include_dirs = [
            each if os.path.isabs(each) else str(PATH_C / each) for each in extension.include_dirs
        ]
        if not extension.name.startswith(COMPILED):
            extension.name = extension.name.replace("leveret", COMPILED, 1)
    return made


def extensions() -> list[Extension]:
    """Translate the kernels whose sources are there to C, and the path if asked; none with LEVERET_COMPILE=0."""
    if COMPILE == "0" or DESCRIBES.intersection(sys.argv):
        return []
    made = [extension for source in KERNELS if source.exists() for extension in in_c(source)]
    if COMPILE == "path":
        made += path_in_c()
    return made


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


class BuildExt(build_ext):
    """Puts the compiled path into a folder of its own, with a manifest; what an earlier build has left there goes."""

    def run(self) -> None:
        is_in_place = self.inplace or self.editable_mode
        into = [
            Path(each, *COMPILED.split(".")) for each in (self.build_lib, "")[: 1 + is_in_place]
        ]
        for folder in into:
            shutil.rmtree(folder, ignore_errors=True)
        if COMPILE != "path":
            super().run()
            return
        for folder in into:
            for module in PATH:
                (folder / module).parent.mkdir(parents=True, exist_ok=True)
        self.parallel = os.cpu_count()
        super().run()
        modules = [module.removesuffix(".py").replace("/", ".") for module in PATH]
        manifest = json.dumps({"modules": modules, "sources": sources_of_path()}, indent=1)
        for folder in into:
            (folder / "manifest.json").write_text(manifest)


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
    cmdclass={"build_py": BuildPy, "build_ext": BuildExt},
    ext_modules=extensions(),
    # pip asks with egg_info for what a build needs
    setup_requires=["mypy>=2.4"] if COMPILE == "path" and "egg_info" in sys.argv else [],
)
