"""Run one step of an installation: a line with its name and its time, and its output only if it fails.

    python3 tools/step.py NAME COMMAND...

Lines of the output that begin with ``leveret:`` are for the user, and are shown in any case. Needs nothing but Python.
"""

from __future__ import annotations

import subprocess
import sys
import time


def main(name: str, *command: str) -> int:
    """Run the command; return its exit code."""
    print(f"leveret: {name} ...", end="", flush=True)
    began = time.monotonic()
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    print(f" {time.monotonic() - began:.1f} s", flush=True)
    if done.returncode:
        print(done.stdout, file=sys.stderr, end="")
        print(f"leveret: {name}: {' '.join(command)} failed", file=sys.stderr)
    else:
        told = [line for line in done.stdout.splitlines() if line.startswith("leveret:")]
        print("".join(f"{line}\n" for line in told), end="", flush=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
