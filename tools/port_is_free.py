"""Say before an installation that the broker could not listen afterwards.

    python3 tools/port_is_free.py [ARGUMENTS OF leveret serve]

Exits with 69, as ``leveret serve`` does, where a port of ``--listen`` is in use, or 5672 without ``--listen``. What a
configuration file says is left to ``leveret serve``. Needs nothing but Python.
"""

from __future__ import annotations

import argparse
import errno
import os
import re
import socket
import sys

DEFAULT = "127.0.0.1:5672"


def main(arguments: list[str]) -> int:
    """Try each address; return the exit code."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--listen", action="append")
    parser.add_argument("--config")
    given, _ = parser.parse_known_args(arguments)
    addresses = given.listen or ([] if given.config else [DEFAULT])
    for address in addresses:
        place = re.fullmatch(r"(?:amqps?://)?\[?(.*?)\]?:(\d+)", address)
        if place and is_in_use(place[1], int(place[2])):
            another = f"make run ARGS='--listen {place[1]}:{int(place[2]) + 1}'"
            print(
                f"leveret: cannot listen on {address}: port in use; choose another: {another}",
                file=sys.stderr,
            )
            return os.EX_UNAVAILABLE
    return 0


def is_in_use(host: str, port: int) -> bool:
    """Return whether somebody else listens there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family):
            return False
    except OSError as error:
        return error.errno == errno.EADDRINUSE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
