"""A small disk of its own (a tmpfs), where the process may mount one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """Mount it on a folder, which is made; skip the test where that is not allowed."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "none", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def fill(disk: Path) -> Path:
    """Let a file take all the room that is left; return it."""
    filler = disk / "filler"
    with filler.open("ab", buffering=0) as file:
        for size_bytes in (1 << 20, 4096):
            try:
                while True:
                    file.write(bytes(size_bytes))
            except OSError:
                continue
    return filler
