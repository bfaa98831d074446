"""Files of RabbitMQ as containers, operators, charts and machines have them: what is refused in them, and what is said.

The comment of a line says what becomes of it: ``warned``, ``refused``, or nothing: it has its effect.

Tests: server/config/files.py
"""

from __future__ import annotations

from pathlib import Path

import pytest

from leveret.server.config import files as conf_file

USUAL = sorted((Path(__file__).parents[1] / "data" / "conf").glob("*.conf"))


def lines_of(texts: list[str], path: Path) -> list[int]:
    return [int(text.removeprefix(f"{path}:").partition(":")[0]) for text in texts]


def marked(path: Path, word: str) -> list[int]:
    source = path.read_text("utf-8").splitlines()
    return [number for number, line in enumerate(source, 1) if line.endswith(f" # {word}")]


@pytest.mark.parametrize("path", USUAL, ids=[path.stem for path in USUAL])
def test_a_usual_file_is_judged_line_by_line(path: Path) -> None:
    checked = conf_file.check(path)

    assert lines_of(checked.errors, path) == marked(path, "refused")
    assert lines_of(checked.warnings, path) == marked(path, "warned")


def test_there_are_ten_usual_files() -> None:
    assert len(USUAL) == 10
