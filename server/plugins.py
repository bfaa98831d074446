"""Plug-ins: what installed packages add to the broker, found by their entry points.

The group ``leveret.exchange_types`` names exchange types (``routing/exchange_type.py``). All that are installed are
loaded once, when the first broker of the process starts. ``leveret.interceptors`` names interceptors of messages
(``broker/channel/interceptors.py``), and ``leveret.auth_backends`` back ends that know users and permissions
(``broker/vhost/auth/auth_backends.py``); a broker makes those that its settings name.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final

from leveret.broker.channel.interceptors import Interceptors
from leveret.broker.vhost.auth.access import Access
from leveret.broker.vhost.auth.auth_backends import AuthBackend, ExternalAccess
from leveret.core.errors import ConfigError
from leveret.core.log.loggers import logger
from leveret.routing.exchange import register_type
from leveret.server.auth_http import http_backend
from leveret.server.config.config import INTERNAL, LINK_SEPARATOR

if TYPE_CHECKING:
    from leveret.core.clock import Clock
    from leveret.server.config.config import Config

log = logger(__name__)

EXCHANGE_TYPES: Final = "leveret.exchange_types"
INTERCEPTORS: Final = "leveret.interceptors"
AUTH_BACKENDS: Final = "leveret.auth_backends"


@functools.cache
def load_exchange_types() -> None:
    """Register the exchange types of all installed packages, in the order of their names.

    Raises:
        ConfigError: one cannot be imported, or its name is taken.
    """
    for name, type_ in _loaded(EXCHANGE_TYPES):
        try:
            register_type(name, type_)
        except ValueError as error:
            raise ConfigError(f"plug-in {name!r} of {EXCHANGE_TYPES}: {error}") from error


def load_interceptors(names: Sequence[str]) -> Interceptors | None:
    """Make the interceptors of these names; None: there are none.

    Raises:
        ConfigError: one is not installed, or cannot be made.
    """
    if not names:
        return None
    installed = {entry.name: entry for entry in entry_points(group=INTERCEPTORS)}
    return Interceptors([_made(_found(installed, name, INTERCEPTORS)) for name in names])


def load_access(config: Config, clock: Clock) -> Access:
    """Return the access of a broker, with the back ends that its settings name.

    Raises:
        ConfigError: one is not installed, or cannot be made.
    """
    if config.auth_backends == (INTERNAL,):
        return Access(config.loopback_users)
    installed = {entry.name: entry for entry in entry_points(group=AUTH_BACKENDS)}
    links = [each.split(LINK_SEPARATOR) for each in config.auth_backends]
    backends: dict[str, AuthBackend | None] = {INTERNAL: None}
    for name in itertools.chain.from_iterable(links):
        if name not in backends:
            is_http = name == "http"
            found = (
                http_backend(config) if is_http else _made(_found(installed, name, AUTH_BACKENDS))
            )
            backends[name] = found
    chain = [(backends[link[0]], backends[link[-1]]) for link in links]
    return ExternalAccess(
        chain, clock, config.auth_cache_s, config.auth_timeout_s, config.loopback_users
    )


def _found(installed: dict[str, EntryPoint], name: str, group: str) -> EntryPoint:
    if name not in installed:
        known = ", ".join(sorted(installed)) or "none"
        raise ConfigError(f"plug-in {name!r} of {group} is not installed; installed: {known}")
    return installed[name]


def _made(entry: EntryPoint) -> Any:
    make = _load(entry)
    try:
        return make()
    except Exception as error:
        raise ConfigError(f"plug-in {entry.name!r} of {entry.group} failed: {error}") from error


def _loaded(group: str) -> Iterator[tuple[str, Any]]:
    """Import what the entry points of a group name, and yield it with its names."""
    for entry in sorted(entry_points(group=group), key=lambda entry: entry.name):
        yield entry.name, _load(entry)


def _load(entry: EntryPoint) -> Any:
    try:
        found = entry.load()
    except Exception as error:
        raise ConfigError(
            f"plug-in {entry.name!r} of {entry.group} ({entry.value}) cannot be loaded: {error}"
        ) from error
    source = f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value
    log.info("plug-in loaded group=%s name=%s package=%s", entry.group, entry.name, source)
    return found
