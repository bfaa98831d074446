"""Where to publish: an AMQP URI, the place it is read from, and TLS.

A password must not become part of a plan, a log line or an error. So a URI with a password is taken only from a
file, an environment variable or a Spark conf whose name Spark redacts; ``Target`` does not show it.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from leveret.client import target as client_target
from leveret.client.target import Target
from leveret.spark.errors import OptionError

_REDACTED: Final = ("secret", "password", "token")  # in names of confs, by spark.redaction.regex


@dataclass(frozen=True, slots=True)
class Tls:
    """Files in PEM, readable on each machine that publishes.

    Attributes:
        ca: certificates to trust; empty: those of the machine.
        cert: the client's certificate, with its key unless ``key`` is given.
        verify: whether the broker's certificate and name are checked.
        server_name: the name in the broker's certificate; empty: the host of the URI.
    """

    ca: str = ""
    cert: str = ""
    key: str = ""
    verify: bool = True
    server_name: str = ""

    def context(self) -> ssl.SSLContext:
        """Return the client's context; OptionError: a file cannot be read, or a key has a password."""
        context = ssl.create_default_context()
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.ca:
            _load("tls.ca", self.ca, lambda: context.load_verify_locations(self.ca))
        if self.cert:
            _load(
                "tls.cert, tls.key",
                f"{self.cert} {self.key}".strip(),
                lambda: context.load_cert_chain(self.cert, self.key or None, _refuse_password),
            )
        return context


@dataclass(frozen=True, slots=True)
class UriSource:
    """The place of a URI: exactly one attribute is set, and only ``uri`` is not a secret.

    Attributes:
        uri: the URI itself, without a password; AMQP's ``guest`` is added where it names no user.
        file: a file whose first line is the URI.
        environment: the name of an environment variable.
        conf: the name of a Spark conf; its name says that it is a secret, so that Spark redacts it.
    """

    uri: str = ""
    file: str = ""
    environment: str = ""
    conf: str = ""

    def __post_init__(self) -> None:
        given = [name for name in (self.uri, self.file, self.environment, self.conf) if name]
        if len(given) != 1:
            raise OptionError(
                f"{len(given)} of the options uri, uriFile, uriEnv and uriConf are given: give exactly one"
            )
        if self.uri and parse_uri(self.uri, "option uri").password not in {"", "guest"}:
            raise OptionError(
                "option uri has a password, which Spark would show in plans:"
                " use uriFile, uriEnv or uriConf"
            )
        lowered = self.conf.lower()
        if self.conf and not (
            lowered.startswith("spark.") and any(word in lowered for word in _REDACTED)
        ):
            raise OptionError(
                f'uriConf "{self.conf}" would be shown by Spark: the name of the conf must begin with'
                ' "spark." and contain "secret", "password" or "token", as in spark.leveret.secret.uri'
            )

    def read(
        self, conf: Callable[[str], str | None], environment: Mapping[str, str] = os.environ
    ) -> Target:
        """Return the target; ``conf`` looks up a Spark conf. OptionError: it is missing or malformed."""
        if self.uri:
            return parse_uri(self.uri, "option uri")
        if self.file:
            return parse_uri(_first_line(self.file), f'the first line of uriFile "{self.file}"')
        if self.environment:
            uri = environment.get(self.environment)
            if uri is None:
                raise OptionError(f"environment variable {self.environment} of uriEnv is not set")
            return parse_uri(uri, f"environment variable {self.environment}")
        uri = conf(self.conf)
        if uri is None:
            raise OptionError(f"Spark conf {self.conf} of uriConf is not set")
        return parse_uri(uri, f"Spark conf {self.conf}")


def parse_uri(uri: str, place: str) -> Target:
    """Parse an AMQP URI; OptionError: it is none, which names only the place."""
    try:
        return client_target.parse_uri(uri, place)
    except ValueError as error:
        raise OptionError(str(error)) from None


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text("utf-8").partition("\n")[0]
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f'uriFile "{path}" cannot be read: {error}') from None


def _load(option: str, path: str, load: Callable[[], None]) -> None:
    try:
        load()
    except (OSError, ssl.SSLError) as error:
        raise OptionError(f"{option}: {path} cannot be used: {error}") from None


def _refuse_password() -> str:
    raise OptionError(
        "tls.key is encrypted: give a key without a password, protected by its file's mode"
    )
