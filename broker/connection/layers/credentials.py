"""The broker's certificate and key, and the authorities that it trusts: OpenSSL's context, made from files.

The files are read again when they have changed, and on SIGHUP. A certificate and its key are two files that are seldom
replaced at the same moment, so a change counts when two checks in a row find the same files. Files that
cannot be used leave the former context in use, with a line in the log; connections keep the context they began with.
"""

from __future__ import annotations

import functools
import ssl
from pathlib import Path
from typing import Any, Final

from leveret.broker.connection.layers.certificate import Dates, dates_in
from leveret.core.errors import ConfigError
from leveret.core.log.loggers import logger
from leveret.core.settings import BrokerSettings

log = logger(__name__)

CHECK_S: Final = 5.0  # between two checks of the files
VERSIONS: Final = {
    "tlsv1.2": ssl.TLSVersion.TLSv1_2,
    "tlsv1.3": ssl.TLSVersion.TLSv1_3,
}
_ROOT_AND_PEER: Final = 2  # of a chain; the others are intermediates


class Credentials:
    """Makes the context of the TLS listeners of a node.

    Args:
        settings: those that begin with ``tls_``.

    Attributes:
        context: for the handshakes from now on.
        handshake_s: the time that a handshake may take.

    Raises:
        ConfigError: a file cannot be used, or a setting not be fulfilled; the text names it.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self.handshake_s = settings.tls_handshake_s
        self._changes = FileChanges(self.files)
        self.context = _context(settings)

    @property
    def files(self) -> list[Path]:
        """The files that the context is made from."""
        settings = self._settings
        return _given(settings.tls_ca_file, settings.tls_cert_file, settings.tls_key_file)

    def dates(self) -> dict[Path, list[Dates]]:
        """Return the dates of all certificates in the files of certificates, as they are now.

        Raises:
            OSError: a file cannot be read.
            ValueError: a file holds no certificate, or a damaged one.
        """
        files = _given(self._settings.tls_cert_file, self._settings.tls_ca_file)
        return {file: dates_in(file) for file in files}

    def reload(self) -> bool:
        """Make the context anew; return whether the files could be used."""
        self._changes.note()
        try:
            self.context = _context(self._settings)
        except ConfigError as error:
            log.error("certificates not reloaded, the former ones stay in use error=%s", error)
            return False
        log.info("certificates reloaded files=%s", " ".join(map(str, self.files)))
        return True

    def reload_if_changed(self) -> None:
        """Make the context anew if the files have changed, but not since the last call."""
        if self._changes.have_settled():
            self.reload()

    def problem(self, connection: ssl.SSLObject) -> str:
        """Return why a connection whose handshake is complete is refused; empty: it is not."""
        depth = self._settings.tls_depth
        if depth is None:
            return ""
        chain = connection._sslobj.get_verified_chain() or ()  # type: ignore[attr-defined]  # noqa: SLF001 - public in Python 3.13
        between = max(0, len(chain) - _ROOT_AND_PEER)
        if between <= depth:
            return ""
        return (
            f"client certificate refused: {between} intermediate certificates, allowed are {depth}"
        )


class FileChanges:
    """Files that may be replaced, one after the other, at any time.

    Args:
        files: that were read just now, or will be at once.
    """

    def __init__(self, files: list[Path]) -> None:
        self._files = files
        self.note()

    def note(self) -> None:
        """Note that the files are read now."""
        self._seen = self._read = self._states()

    def have_settled(self) -> bool:
        """Return whether the files have changed since they were read, but not since the last call."""
        before, self._seen = self._seen, self._states()
        return self._seen == before != self._read

    def _states(self) -> list[Any]:
        return [_state(path) for path in self._files]


def _given(*files: Path | None) -> list[Path]:
    return [each for each in files if each is not None]


def _state(path: Path) -> tuple[int, int, int] | None:
    """Return what changes with a file's content; None: the file cannot be examined."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _context(settings: BrokerSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # A client may not start a handshake anew within a connection: it costs it less than the broker.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 0  # with TLS 1.3 each connection is verified
    versions = sorted(VERSIONS[name] for name in settings.tls_versions)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    if settings.tls_ciphers:
        _set_ciphers(context, settings.tls_ciphers)
    if settings.tls_ca_file is not None:
        load_authorities(context, settings.tls_ca_file)
    if settings.tls_verify:
        required = settings.tls_require_certificate
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    assert settings.tls_cert_file is not None
    load_chain(
        context,
        settings.tls_cert_file,
        settings.tls_key_file,
        settings.tls_key_password,
        "tls_key_password",
    )
    return context


def _set_ciphers(context: ssl.SSLContext, names: tuple[str, ...]) -> None:
    """Allow these ciphers only.

    Python cannot choose among those of TLS 1.3, so all of them are allowed or the version is not.
    """
    if unknown := [name for name in names if name not in ciphers()]:
        raise ConfigError(f"tls_ciphers has {unknown[0]}, which OpenSSL does not have")
    newest = {each["name"] for each in context.get_ciphers() if each["protocol"] == "TLSv1.3"}
    older = [name for name in names if name not in newest]
    if len(older) == len(names):
        if context.minimum_version == ssl.TLSVersion.TLSv1_3:
            raise ConfigError("tls_ciphers has none of TLS 1.3, the only version that is allowed")
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    elif missing := sorted(newest - set(names)):
        raise ConfigError(f"tls_ciphers has not {missing[0]}: those of TLS 1.3 go together")
    if older:
        context.set_ciphers(":".join(older))
    else:
        context.minimum_version = ssl.TLSVersion.TLSv1_3


@functools.cache
def ciphers() -> dict[str, Any]:
    """Return all ciphers of OpenSSL by their names, as ``ssl.SSLContext.get_ciphers`` describes them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL")
    return {each["name"]: each for each in context.get_ciphers()}


def load_authorities(context: ssl.SSLContext, path: Path) -> None:
    """Have a context trust the authorities in a file; ConfigError: it cannot be used."""
    _certificates(path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise ConfigError(f"{path} holds a damaged certificate: {_words(error)}") from error


def load_chain(
    context: ssl.SSLContext, file: Path, key: Path | None, password: str | None, setting: str
) -> None:
    """Have a context show a certificate.

    Args:
        context: of one side of connections.
        file: of the certificate and its chain.
        key: file of its key; None: the key is in the certificate's file.
        password: of an encrypted key.
        setting: the name of the password's setting, for error messages.

    Raises:
        ConfigError: a file cannot be used; the text names it.
    """
    _certificates(file)
    key = key or file
    try:
        with open(key, "rb"):
            pass
        context.load_cert_chain(file, key, password if password is not None else _no_password)
    except _NoPasswordError:
        raise ConfigError(f"key {key} is encrypted, and there is no {setting}") from None
    except ssl.SSLError as error:
        raise ConfigError(
            _problem(error, file, key, "" if password is None else setting)
        ) from error
    except OSError as error:
        raise ConfigError(f"cannot read {key}: {error.strerror}") from error


def _certificates(path: Path) -> None:
    """Check that a file holds certificates in PEM."""
    try:
        dates_in(path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} {error}") from error


class _NoPasswordError(Exception):
    """A key is encrypted."""


def _no_password() -> str:
    """Answer OpenSSL, which would otherwise ask on the terminal."""
    raise _NoPasswordError


def _problem(error: ssl.SSLError, file: Path, key: Path, setting: str) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"key {key} does not belong to certificate {file}"
    text = key.read_text("utf-8", "replace")
    if "PRIVATE KEY" not in text:
        remedy = "; the setting of the key can name another file" if key == file else ""
        return f"key {key} cannot be used: it holds no private key in PEM{remedy}"
    if setting and "ENCRYPTED" in text:
        return f"key {key} cannot be decrypted with {setting}"
    return f"key {key} cannot be used: {_words(error)}"


def _words(error: ssl.SSLError) -> str:
    return error.reason.lower().replace("_", " ") if error.reason else "it is damaged"
