"""Properties of the compiled kernel alone: the hash of its source, and the memory it holds."""

from __future__ import annotations

import gc
import hashlib
import os
import shutil
import struct
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest

from leveret.amqp.errors import SyntaxError_
from rigs.traced_memory import bytes_kept

kernel = pytest.importorskip("leveret.amqp._kernel_c")

FRAME_MAX = 131072
MESSAGE_MAX = 1 << 27
CORPUS = [
    bytes.fromhex("".join(path.read_text().splitlines()[1:]))
    for path in sorted((Path(__file__).parent / "fuzz_corpus").glob("*.hex"))
]
PROPERTIES = b"\x90\x00\x18application/octet-stream\x01"


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def method(key: bytes = b"key", exchange: bytes = b"") -> bytes:
    return b"\0\x3c\0\x28\0\0%c%b%c%b\0" % (len(exchange), exchange, len(key), key)


def publish(body: bytes = b"body", key: bytes = b"key", channel: int = 1) -> bytes:
    head = struct.pack(">HHQ", 60, 0, len(body)) + PROPERTIES
    bodies = [body[at : at + FRAME_MAX - 8] for at in range(0, len(body), FRAME_MAX - 8)]
    return (
        frame(1, channel, method(key))
        + frame(2, channel, head)
        + b"".join(frame(3, channel, part) for part in bodies)
    )


def ack(tag: int, channel: int = 1) -> bytes:
    return frame(1, channel, struct.pack(">HHQB", 60, 80, tag, 0))


def test_the_extension_was_made_from_the_sources_beside_it() -> None:
    folder = Path(kernel.__file__).parent
    sources = [folder / "_kernel_c.pyx", *sorted(folder.glob("_kernel_c_*.pxi"))]
    source_hash = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()

    assert len(sources) == 7
    assert source_hash == kernel.SOURCE_HASH, (
        "leveret/amqp/_kernel_c is stale: run pip install -e . again"
    )


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return a folder that holds the package as far as the kernel needs it."""
    package = tmp_path / "leveret"
    root = Path(kernel.__file__).parent.resolve().parent
    for name in ("amqp", "core"):
        shutil.copytree(root / name, package / name, ignore=shutil.ignore_patterns("*.c"))
    (package / "__init__.py").touch()
    return tmp_path


def chosen(folder: Path, wanted: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from leveret.amqp import kernel; print(kernel.KERNEL_NAME)"],
        cwd=folder,
        env={
            **os.environ,
            "LEVERET_KERNEL": wanted,
            "PYTHONPATH": str(folder),
            "PYTHONSAFEPATH": "1",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("wanted", ["", "c"])
def test_the_extension_is_taken_in_silence_when_it_is_there(installed: Path, wanted: str) -> None:
    done = chosen(installed, wanted)

    assert (done.returncode, done.stdout, done.stderr) == (0, "c\n", "")


@pytest.mark.parametrize("name", ["_kernel_c.pyx", "_kernel_c_octets.pxi"])
def test_a_stale_extension_is_ignored_with_a_warning(installed: Path, name: str) -> None:
    with (installed / "leveret/amqp" / name).open("a") as source:
        source.write("# changed\n")

    done = chosen(installed, "")

    assert (done.returncode, done.stdout) == (0, "py\n")
    assert "RuntimeWarning: leveret.amqp._kernel_c is older than its source" in done.stderr


def test_a_stale_extension_that_was_asked_for_is_an_error(installed: Path) -> None:
    (installed / "leveret/amqp/_kernel_c.pyx").write_text("")

    done = chosen(installed, "c")

    assert done.returncode != 0
    assert "ImportError" in done.stderr


def test_without_its_sources_beside_it_the_extension_is_believed(installed: Path) -> None:
    for source in (installed / "leveret/amqp").glob("_kernel_c*.p[xy][xi]"):
        source.unlink()

    done = chosen(installed, "")

    assert (done.returncode, done.stdout, done.stderr) == (0, "c\n", "")


def test_equal_messages_share_their_objects_also_from_scan_to_scan() -> None:
    scanner = kernel.Scanner(FRAME_MAX, MESSAGE_MAX)

    [(_, _, first_method, _, [one, two])] = scanner.scan(publish() * 2)
    [(_, _, second_method, _, [three])] = scanner.scan(publish())

    assert first_method is second_method
    assert one[0] is two[0] is three[0]
    assert one[1] is two[1] is three[1]


def test_an_announced_size_takes_no_memory_before_the_bytes_come() -> None:
    scanner = kernel.Scanner(0, 1 << 40)
    head = struct.pack(">HHQ", 60, 0, 1 << 39) + PROPERTIES
    start = frame(1, 1, method()) + frame(2, 1, head) + struct.pack(">BHI", 3, 1, 0xFFFFFFFF)
    scanner.scan(start)
    tracemalloc.start()

    for _ in range(100):
        assert scanner.scan(b"x" * 1000) == []
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert taken < 3 * 100 * 1000


def test_a_body_in_many_pieces_is_given_back_whole() -> None:
    scanner = kernel.Scanner(FRAME_MAX, MESSAGE_MAX)
    body = bytes(range(256)) * 2000
    wire = publish(body)

    runs = [run for at in range(0, len(wire), 777) for run in scanner.scan(wire[at : at + 777])]

    [(_, _, _, _, [message])] = runs
    assert message[2] == body
    assert scanner.pending == ()
    assert scanner.buffered == 0


def test_a_hundred_thousand_scans_of_the_corpus_keep_nothing() -> None:
    halves = [(wire[: len(wire) // 2], wire[len(wire) // 2 :]) for wire in CORPUS]
    shared = [*(half for pair in halves for half in pair), b"", None, 1, 60]

    def rounds(count: int) -> None:
        for _ in range(count):
            for first, second in halves:
                scanner = kernel.Scanner(FRAME_MAX, MESSAGE_MAX)
                scanner.scan(first)
                scanner.scan(second)

    def counted() -> list[int]:
        return [sys.getrefcount(one) for one in shared]

    rounds(10)
    gc.collect()
    tracemalloc.start()
    rounds(10)
    references = counted()
    before, _ = tracemalloc.get_traced_memory()
    rounds(100_000 // len(halves) // 2)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert after - before < 4000
    assert all(abs(now - then) < 50 for now, then in zip(counted(), references, strict=True))


def test_a_scanner_dropped_in_the_middle_of_a_body_frees_it() -> None:
    wire = publish(b"x" * 100_000)[:-500]
    tracemalloc.start()

    for _ in range(50):
        kernel.Scanner(FRAME_MAX, MESSAGE_MAX).scan(wire)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert taken < 100_000


def test_tables_that_are_read_and_written_keep_no_memory() -> None:
    nested = {"deeper": ("F", {"a": ("A", [("S", b"x" * 50), ("D", (1, 70_000))])})}
    table = {"text": ("S", b"y" * 50), "number": ("l", 1 << 40), **nested}
    wire = kernel.write_fields(table, "L")
    fields, twice = wire[4:], 2 * wire[4:]

    def rounds(count: int) -> None:
        for _ in range(count):
            assert kernel.read_fields(twice, 0, len(twice)) == table
            for end in range(0, len(fields), 7):
                with suppress(SyntaxError_):
                    kernel.read_fields(fields, 0, end)
            for wrong in (("I", 1.5), ("b", 128), ("S", None), ("Z", 1), ("F", 1)):
                with suppress(TypeError, OverflowError, AttributeError):
                    kernel.write_fields({**table, "wrong": ("F", {"n": wrong})}, "L")

    assert bytes_kept(rounds, 200) < 4000


@pytest.mark.parametrize(
    "message",
    [
        (b"\0\0", b"head"),
        [b"\0\0", b"head", b""],
        (b"\0\0", None, b""),
        (b"\0\0", b"head", bytearray(b"body")),
        ("\0\0", b"head", b""),
    ],
)
def test_what_is_no_message_is_refused(message: object) -> None:
    with pytest.raises(TypeError, match="three bytes"):
        kernel.deliveries(1, b"tag", 1, 0, FRAME_MAX, [message])


CRASH = """
import random, sys
from leveret.amqp._kernel_c import Scanner
corpus = [bytes.fromhex(wire) for wire in sys.argv[1:]]
rng = random.Random(36)
total = 0
while total < 2_000_000:
    wire = bytearray(rng.choice(corpus) + rng.choice(corpus))
    for _ in range(rng.randrange(4)):
        wire[rng.randrange(len(wire))] = rng.choice((0, 1, 2, 3, 8, 60, 0xCE, 0xFF, rng.randrange(256)))
    if rng.random() < 0.2:
        wire += rng.randbytes(rng.randrange(64))
    scanner = Scanner(rng.choice((0, 64, 4096)), rng.choice((16, 1 << 20)))
    scanner.stepwise = rng.random() < 0.1
    at = 0
    while at < len(wire):
        step = rng.choice((1, 7, 30, 200, len(wire)))
        scanner.scan(bytes(wire[at:at + step]))
        at += step
    total += len(wire)
print("alive")
"""


def test_two_million_mutated_bytes_do_not_crash_it(tmp_path: Path) -> None:
    wires = [wire.hex() for wire in CORPUS]
    environment = {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONMALLOC": "debug"}

    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", CRASH, *wires],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (done.returncode, done.stdout.strip()) == (0, "alive"), done.stderr[-2000:]
