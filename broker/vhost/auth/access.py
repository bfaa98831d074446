"""Access control: users, permissions, topic permissions. No I/O: rows in, answers or errors out.

A permission is three regular expressions per user and vhost: *configure*, *write* and *read*. They are searched
anywhere in the name of the queue or exchange (``patterns.py``); the empty one matches the empty name only, so it
grants nothing, and neither does a stored one that cannot be read. No permission means no access to the vhost. A topic
permission limits routing keys per topic exchange; no topic permission means no limit. Every change moves ``epoch``,
so that cached routes are worked out anew (RabbitMQ's channels keep the last twelve granted checks for a while).

Differs from RabbitMQ: ``{username}`` and ``{vhost}`` in topic permissions stand for those texts, not for
regular expressions; a user named ``.*`` gains nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, TypeAlias

from leveret.amqp.errors import AccessRefused, NotAllowed
from leveret.broker.vhost.patterns import PatternError, compile_pattern
from leveret.core.log.loggers import logger
from leveret.metadata.passwords import hash_password, verify_password
from leveret.metadata.tables import Contents, PermissionRow, Row, TopicPermissionRow, UserRow

CONFIGURE: Final = "configure"
WRITE: Final = "write"
READ: Final = "read"
KINDS: Final = (CONFIGURE, WRITE, READ)
ANY_NAME: Final = ".*"  # the expression that most users have
GRANTED_MAX: Final = 4_096

_DEFAULT_EXCHANGE: Final = "amq.default"  # how the nameless exchange is called here
_NOBODY: Final = UserRow("", hash_password(b"nobody", b"salt"))

Permission: TypeAlias = PermissionRow | TopicPermissionRow

log = logger(__name__)


class User:
    """A user as connections hold it; it follows when the user is changed.

    Attributes:
        tags: ``administrator``, ``impersonator``, ...
        limits: ``max-connections``, ``max-channels``; -1 or absent = none.
    """

    __slots__ = ("limits", "name", "row", "tags")

    def __init__(self, row: UserRow) -> None:
        self.name = row.name
        self.update(row)

    def update(self, row: UserRow) -> None:
        self.row = row
        self.tags = frozenset(row.tags)
        self.limits = dict(row.limits)

    def __repr__(self) -> str:
        return f"<User {self.name!r}>"


class LoginRefused(AccessRefused):
    """The login is refused; ``reason`` is for the log and never for the client."""

    def __init__(self, mechanism: str, reason: str) -> None:
        super().__init__(
            f"Login was refused using authentication mechanism {mechanism}. "
            "For details see the broker logfile."
        )
        self.reason = reason

    @property
    def log_text(self) -> str:
        return self.reason


class Access:
    """All users and permissions of a broker.

    Args:
        loopback_users: users that may only come from the machine itself.
        now_s: measures searches; a clock that moves within a turn.

    Attributes:
        epoch: grows with every change.
        permissions: rows by (user, vhost).
        topic_permissions: rows by (user, vhost, exchange).
    """

    def __init__(
        self,
        loopback_users: Iterable[str] = ("guest",),
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now_s = now_s
        self.epoch = 0
        self.users: dict[str, User] = {}
        self.permissions: dict[tuple[str, str], PermissionRow] = {}
        self.topic_permissions: dict[tuple[str, str, str], TopicPermissionRow] = {}
        self._loopback_users = frozenset(loopback_users)
        self._granted: set[tuple[str, str, str, str]] = set()

    # -- checks --------------------------------------------------------------------------------

    def authenticate(
        self, name: str | bytes, password: str | bytes, mechanism: str, from_loopback: bool
    ) -> User:
        """Return the user that logs in.

        Raises:
            LoginRefused: no such user, wrong password, or not from here; the text never says which.
        """
        name = name if isinstance(name, str) else name.decode("utf-8", "surrogateescape")
        if isinstance(password, str):
            password = password.encode("utf-8", "surrogateescape")
        user = self.users.get(name)
        # An unknown name costs as much time as a wrong password.
        row = user.row if user is not None else _NOBODY
        is_right = verify_password(password, row.password_hash, row.hashing_algorithm)
        if user is None or not is_right:
            raise LoginRefused(mechanism, f"user '{name}' - invalid credentials")
        return self.admit(name, mechanism, from_loopback)

    def admit(self, name: str, mechanism: str, from_loopback: bool) -> User:
        """Return a user whose name was authenticated by other means.

        Raises:
            LoginRefused: no such user, or not from here.
        """
        user = self.users.get(name)
        if user is None:
            raise LoginRefused(mechanism, f"user '{name}' - invalid credentials")
        self.check_address(name, mechanism, from_loopback)
        return user

    def check_address(self, name: str, mechanism: str, from_loopback: bool) -> None:
        """Raise LoginRefused where a user may only come from the machine itself, and does not."""
        if name in self._loopback_users and not from_loopback:
            raise LoginRefused(mechanism, f"user '{name}' can only connect via localhost")

    def update_secret(self, user: User, secret: bytes) -> Callable[[], None]:
        """Begin to hand over a new secret; return a function that raises NotAllowed if it is refused.

        The broker's own users need none: their logins do not expire.
        """
        return _taken

    def log_in(
        self, name: str, password: bytes | None, mechanism: str, from_loopback: bool, peer: str
    ) -> Callable[[], User]:
        """Begin a login; return a function that returns the user, or raises LoginRefused.

        Args:
            name: of the user.
            password: None where a certificate has proved who the client is.
            mechanism: for the text of an error.
            from_loopback: the client is on this machine.
            peer: its address.
        """
        if password is None:
            return partial(self.admit, name, mechanism, from_loopback)
        return partial(self.authenticate, name, password, mechanism, from_loopback)

    def check_vhost(self, user: User, vhost: str) -> None:
        """Raise NotAllowed when the user has no permission at all in a vhost (that exists)."""
        if (user.name, vhost) not in self.permissions:
            raise NotAllowed(f"access to vhost '{vhost}' refused for user '{user.name}'")

    def check_exchange(self, user: User, vhost: str, name: str, permission: str) -> None:
        """Raise AccessRefused unless the user may configure, write or read an exchange."""
        name = name or _DEFAULT_EXCHANGE
        if not self.may(user, vhost, "exchange", name, permission):
            raise AccessRefused(
                f"access to exchange '{name}' in vhost '{vhost}' refused for user '{user.name}'"
            )

    def check_queue(self, user: User, vhost: str, name: str, permission: str) -> None:
        """Raise AccessRefused unless the user may configure, write or read a queue."""
        if not self.may(user, vhost, "queue", name, permission):
            raise AccessRefused(
                f"access to queue '{name}' in vhost '{vhost}' refused for user '{user.name}'"
            )

    def check_topic(
        self, user: User, vhost: str, exchange: str, key: bytes, permission: str
    ) -> float:
        """Return the time that the search took, in seconds; publishers differ in keys, so that it adds up.

        Raises:
            AccessRefused: the user may not write or read with this routing key.
        """
        row = self.topic_permissions.get((user.name, vhost, exchange))
        if row is None:
            return 0.0
        began_s = self._now_s()
        if not _grants(row, permission, key):
            raise refused_topic(user, vhost, exchange, key)
        return self._now_s() - began_s

    def may(self, user: User, vhost: str, kind: str, name: str, permission: str) -> bool:
        row = self.permissions.get((user.name, vhost))
        if row is None:
            return False
        if getattr(row, permission) == ANY_NAME:
            return True
        check = (user.name, vhost, name, permission)
        if check in self._granted:
            return True
        if not _grants(row, permission, name.encode("utf-8", "surrogateescape")):
            return False
        if len(self._granted) >= GRANTED_MAX:
            self._granted.clear()
        self._granted.add(check)
        return True

    # -- changes: made here at once; the caller writes the rows ----------------------------------

    def load(self, contents: Contents) -> None:
        """Take in the rows of a store; they replace rows of the same key.

        A permission that cannot be read is logged; its invalid expressions grant nothing.
        """
        for user in contents.users:
            self._put(user)
        rows: list[Permission] = [*contents.permissions, *contents.topic_permissions]
        for row in rows:
            try:
                check_patterns(row)
            except PatternError as error:
                log.error(
                    "stored permission cannot be read, grants nothing; set it again "
                    "user=%s vhost=%s reason=%s",
                    row.user, row.vhost, error,
                )  # fmt: skip
            self._put(row)

    def put(self, row: UserRow | Permission) -> None:
        """Make or replace a row; PatternError: a permission is invalid, and nothing is changed."""
        if not isinstance(row, UserRow):
            check_patterns(row)
        self._put(row)

    def _put(self, row: UserRow | Permission) -> None:
        if isinstance(row, UserRow):
            user = self.users.get(row.name)
            if user is None:
                self.users[row.name] = User(row)
            else:
                user.update(row)
        elif isinstance(row, PermissionRow):
            self.permissions[row.user, row.vhost] = row
        else:
            self.topic_permissions[row.user, row.vhost, row.exchange] = row
        self._changed()

    def rows_of_user(self, name: str) -> list[Row]:
        user = self.users.get(name)
        rows: list[Row] = [user.row] if user is not None else []
        return rows + self._permissions_where(lambda row: row.user == name)

    def rows_of_vhost(self, name: str) -> list[Row]:
        return self._permissions_where(lambda row: row.vhost == name)

    def _permissions_where(self, goes: Callable[[Permission], bool]) -> list[Row]:
        rows: list[Row] = [row for row in self.permissions.values() if goes(row)]
        return rows + [row for row in self.topic_permissions.values() if goes(row)]

    def remove(self, rows: Iterable[Row]) -> None:
        """Forget users and permissions; missing ones, and rows of other tables, are fine."""
        for row in rows:
            if isinstance(row, UserRow):
                self.users.pop(row.name, None)
            elif isinstance(row, PermissionRow):
                self.permissions.pop((row.user, row.vhost), None)
            elif isinstance(row, TopicPermissionRow):
                self.topic_permissions.pop((row.user, row.vhost, row.exchange), None)
        self._changed()

    def close(self) -> None:
        """The broker stops."""

    def _changed(self) -> None:
        self._granted.clear()
        self.epoch += 1


def refused_topic(user: User, vhost: str, exchange: str, key: bytes) -> AccessRefused:
    """Return the error of a user that may not write or read with a routing key."""
    text = key.decode("utf-8", "surrogateescape")
    return AccessRefused(
        f"access to topic '{text}' in exchange '{exchange}' in vhost '{vhost}' "
        f"refused for user '{user.name}'"
    )


def check_patterns(row: Permission) -> None:
    """Raise PatternError when an expression of a permission is invalid."""
    for permission in (WRITE, READ) if isinstance(row, TopicPermissionRow) else KINDS:
        compile_pattern(_expression(row, permission))


def _grants(row: Permission, permission: str, octets: bytes) -> bool:
    try:
        return compile_pattern(_expression(row, permission)).finds(octets)
    except PatternError:
        return False  # logged by ``Access.load``


def _expression(row: Permission, permission: str) -> str:
    text: str = getattr(row, permission) or "^$"
    if isinstance(row, TopicPermissionRow):
        text = text.replace("{username}", re.escape(row.user))
        text = text.replace("{vhost}", re.escape(row.vhost))
    return text


def _taken() -> None:
    """A secret that nobody needs is taken."""
