"""Access: users, permissions, topic permissions. No I/O: rows in, answers or errors out.

A permission is three regular expressions per user and vhost: *configure*, *write* and *read*. They are
searched anywhere in the name of the queue or exchange; the empty one matches the empty name only, so
it grants nothing. No permission means no access to the vhost. A topic permission limits routing keys
per topic exchange; no topic permission means no limit. Every change moves ``epoch``, so that
cached routes are worked out anew (RabbitMQ's channels keep the last twelve granted checks for a while).

Differs from RabbitMQ: ``{username}`` and ``{vhost}`` in topic permissions stand for those texts, not for
regular expressions; a user named ``.*`` gains nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from leveret.amqp.errors import AccessRefused, NotAllowed
from leveret.broker.vhost.patterns import compile_pattern
from leveret.metadata.passwords import hash_password, verify_password
from leveret.metadata.tables import Contents, PermissionRow, Row, TopicPermissionRow, UserRow

CONFIGURE: Final = "configure"
WRITE: Final = "write"
READ: Final = "read"
GRANTED_MAX: Final = 4_096

_DEFAULT_EXCHANGE: Final = "amq.default"  # how the nameless exchange is called here
_NOBODY: Final = UserRow("", hash_password(b"nobody", b"salt"))

_Patterns: TypeAlias = dict[str, re.Pattern[bytes]]


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


class Access:
    """All users and permissions of a broker.

    Args:
        loopback_users: users that may only come from the machine itself.

    Attributes:
        epoch: grows with every change.
        permissions: rows by (user, vhost).
        topic_permissions: rows by (user, vhost, exchange).
    """

    def __init__(self, loopback_users: Iterable[str] = ("guest",)) -> None:
        self.epoch = 0
        self.users: dict[str, User] = {}
        self.permissions: dict[tuple[str, str], PermissionRow] = {}
        self.topic_permissions: dict[tuple[str, str, str], TopicPermissionRow] = {}
        self._loopback_users = frozenset(loopback_users)
        self._patterns: dict[tuple[str, str], _Patterns] = {}
        self._topic_patterns: dict[tuple[str, str, str], _Patterns] = {}
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
        if name in self._loopback_users and not from_loopback:
            raise LoginRefused(mechanism, f"user '{name}' can only connect via localhost")
        return user

    def check_vhost(self, user: User, vhost: str) -> None:
        """Raise NotAllowed when the user has no permission at all in a vhost (that exists)."""
        if (user.name, vhost) not in self.permissions:
            raise NotAllowed(f"access to vhost '{vhost}' refused for user '{user.name}'")

    def check_exchange(self, user: User, vhost: str, name: str, permission: str) -> None:
        """Raise AccessRefused unless the user may configure, write or read an exchange."""
        name = name or _DEFAULT_EXCHANGE
        if not self.may(user, vhost, name, permission):
            raise AccessRefused(
                f"access to exchange '{name}' in vhost '{vhost}' refused for user '{user.name}'"
            )

    def check_queue(self, user: User, vhost: str, name: str, permission: str) -> None:
        """Raise AccessRefused unless the user may configure, write or read a queue."""
        if not self.may(user, vhost, name, permission):
            raise AccessRefused(
                f"access to queue '{name}' in vhost '{vhost}' refused for user '{user.name}'"
            )

    def check_topic(
        self, user: User, vhost: str, exchange: str, key: bytes, permission: str
    ) -> None:
        """Raise AccessRefused unless the user may write or read with this routing key."""
        patterns = self._topic_patterns.get((user.name, vhost, exchange))
        if patterns is not None and patterns[permission].search(key) is None:
            text = key.decode("utf-8", "surrogateescape")
            raise AccessRefused(
                f"access to topic '{text}' in exchange '{exchange}' in vhost '{vhost}' "
                f"refused for user '{user.name}'"
            )

    def may(self, user: User, vhost: str, name: str, permission: str) -> bool:
        check = (user.name, vhost, name, permission)
        if check in self._granted:
            return True
        patterns = self._patterns.get((user.name, vhost))
        if patterns is None:
            return False
        wire = name.encode("utf-8", "surrogateescape")
        if patterns[permission].search(wire) is None:
            return False
        if len(self._granted) >= GRANTED_MAX:
            self._granted.clear()
        self._granted.add(check)
        return True

    # -- changes: made here at once; the caller writes the rows ----------------------------------

    def load(self, contents: Contents) -> None:
        """Take in the rows of a store or of a definitions file; they replace rows of the same key.

        Raises:
            PatternError: a permission is not a regular expression.
        """
        rows: list[UserRow | PermissionRow | TopicPermissionRow] = [*contents.users]
        for row in (*rows, *contents.permissions, *contents.topic_permissions):
            self.put(row)

    def put(self, row: UserRow | PermissionRow | TopicPermissionRow) -> None:
        """Make or replace a row; PatternError: a permission is invalid, and nothing is changed."""
        if isinstance(row, UserRow):
            user = self.users.get(row.name)
            if user is None:
                self.users[row.name] = User(row)
            else:
                user.update(row)
        elif isinstance(row, PermissionRow):
            self._patterns[row.user, row.vhost] = patterns_of(row)
            self.permissions[row.user, row.vhost] = row
        else:
            key = (row.user, row.vhost, row.exchange)
            self._topic_patterns[key] = patterns_of(row)
            self.topic_permissions[key] = row
        self._changed()

    def rows_of_user(self, name: str) -> list[Row]:
        user = self.users.get(name)
        rows: list[Row] = [user.row] if user is not None else []
        return rows + self._permissions_where(lambda row: row.user == name)

    def rows_of_vhost(self, name: str) -> list[Row]:
        return self._permissions_where(lambda row: row.vhost == name)

    def _permissions_where(
        self, goes: Callable[[PermissionRow | TopicPermissionRow], bool]
    ) -> list[Row]:
        rows: list[Row] = [row for row in self.permissions.values() if goes(row)]
        return rows + [row for row in self.topic_permissions.values() if goes(row)]

    def remove(self, rows: Iterable[Row]) -> None:
        """Forget users and permissions; missing ones, and rows of other tables, are fine."""
        for row in rows:
            if isinstance(row, UserRow):
                self.users.pop(row.name, None)
            elif isinstance(row, PermissionRow):
                self.permissions.pop((row.user, row.vhost), None)
                self._patterns.pop((row.user, row.vhost), None)
            elif isinstance(row, TopicPermissionRow):
                self.topic_permissions.pop((row.user, row.vhost, row.exchange), None)
                self._topic_patterns.pop((row.user, row.vhost, row.exchange), None)
        self._changed()

    def _changed(self) -> None:
        self._granted.clear()
        self.epoch += 1


def patterns_of(row: PermissionRow | TopicPermissionRow) -> _Patterns:
    """Return a permission's expressions by kind; PatternError: one of them is invalid."""
    if isinstance(row, TopicPermissionRow):
        return {WRITE: _topic_pattern(row.write, row), READ: _topic_pattern(row.read, row)}
    return {
        CONFIGURE: _pattern(row.configure),
        WRITE: _pattern(row.write),
        READ: _pattern(row.read),
    }


def _pattern(text: str) -> re.Pattern[bytes]:
    return compile_pattern(text or "^$")


def _topic_pattern(text: str, row: TopicPermissionRow) -> re.Pattern[bytes]:
    text = text.replace("{username}", re.escape(row.user))
    return _pattern(text.replace("{vhost}", re.escape(row.vhost)))
