"""The arguments that say where etcd is, and as whom it is asked: of ``leveret gm`` and ``leveret metadata``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from leveret.core.errors import ConfigError
from leveret.etcd.settings import EtcdSettings
from leveret.management.errors import CLUSTER_MISSING

TIMEOUT_S: Final = 5.0
MISSING: Final = CLUSTER_MISSING


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add them to the parser of a command."""
    parser.add_argument(
        "--endpoints",
        required=True,
        metavar="URLS",
        help="http://HOST:PORT or https://HOST:PORT, separated by commas",
    )
    parser.add_argument(
        "--prefix", default="/leveret", metavar="PREFIX", help="of the keys (/leveret)"
    )
    parser.add_argument("--user", default="", metavar="NAME", help="to log in to etcd as")
    parser.add_argument(
        "--password-file", type=Path, metavar="FILE", help="with the user's password"
    )
    parser.add_argument(
        "--ca", type=Path, metavar="FILE", help="authorities of etcd (the system's)"
    )
    parser.add_argument("--cert", type=Path, metavar="FILE", help="certificate to show to etcd")
    parser.add_argument("--key", type=Path, metavar="FILE", help="its key")
    parser.add_argument(
        "-t",
        "--timeout",
        type=float,
        metavar="S",
        default=TIMEOUT_S,
        help="wait at most for each endpoint (5)",
    )


def settings(options: argparse.Namespace) -> EtcdSettings:
    """Return the settings that the parsed arguments give.

    Raises:
        ConfigError: they cannot work, or the file of the password cannot be read.
    """
    password = ""
    if options.password_file is not None:
        try:
            password = options.password_file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, ValueError) as error:
            raise ConfigError(f"{options.password_file} cannot be read: {error}") from error
    return EtcdSettings(
        tuple(endpoint.strip() for endpoint in options.endpoints.split(",")),
        options.user,
        password,
        options.ca,
        options.cert,
        options.key,
        options.timeout,
        options.timeout,
    )
