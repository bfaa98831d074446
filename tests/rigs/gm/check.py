"""Judges recorded histories: ``python -m rigs.gm.check PATH...``.

Each path is a file that a ``Recorder`` has written, or a folder with such files (``*.history``); all of them are of the
members of one group. Prints the number of events, and each violation of G1 to G5 and I7 on a line.

Exit codes: 0 there is none; 1 there are some; 64 the arguments are wrong; 65 a file is no history; 66 there is no
history.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rigs.gm.recording import HistoryFileError, read

USAGE = "usage: python -m rigs.gm.check PATH...\n"
EX_VIOLATIONS = 1


def main(arguments: Sequence[str]) -> int:
    """Judge the histories at the paths; return the exit code."""
    if not arguments or any(each.startswith("-") for each in arguments):
        is_help = list(arguments) in (["-h"], ["--help"])
        (sys.stdout if is_help else sys.stderr).write(USAGE)
        return os.EX_OK if is_help else os.EX_USAGE
    try:
        recording = read(map(Path, arguments))
    except HistoryFileError as error:
        return _fail(os.EX_DATAERR, str(error))
    except OSError as error:
        return _fail(os.EX_NOINPUT, str(error))
    if not len(recording.history):
        return _fail(os.EX_NOINPUT, f"no history in {', '.join(arguments)}")
    counts = ", ".join(f"{count} {kind}" for kind, count in recording.history.counts().items())
    found = recording.violations()
    lines = [f"{counts}, {len(recording.rests)} rested", *found]
    lines.append(f"{len(found)} violations" if found else "no violation of G1 to G5 and I7")
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return EX_VIOLATIONS if found else os.EX_OK


def _fail(code: int, text: str) -> int:
    sys.stderr.write(f"{text}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
