"""The header of a dead-lettered message: ``x-death``, ``x-first-death-*``, and where it has been.

A dead letter is a new message with the body of the old one. Its header is the old one with these changes, which are
RabbitMQ's (``rabbit_dead_letter``, 3.10.8):

* ``x-death``, an array of tables, tells of each pair of queue and reason by which the message died: ``count`` (l),
  ``reason`` (S), ``queue`` (S), ``time`` of the first such death (T, seconds), and of that time ``exchange`` (S),
  ``routing-keys`` (A of S: key and CC) and ``original-expiration`` (S, where the message had one). The latest death is
  the first table. A pair that is there already moves to the front and is counted up.
* ``x-first-death-reason``, ``-queue`` and ``-exchange`` (S) are set when there was no ``x-death``.
* An ``x-death`` that is no array is replaced, and sets no ``x-first-death-*``.
* The property ``expiration`` goes. The header ``CC`` goes when the queue's ``x-dead-letter-routing-key`` replaces the
  keys of the message.
* ``x-death`` has at most ``DEATHS_MAX`` tables; the oldest go.
* Headers are written sorted by name, and ``L`` as ``l``; the table of a new ``x-death`` keeps the order above, every
  later one is sorted.

Differs from RabbitMQ: it reverses the order of the other tables each time, against its documentation. So with three
tables and more it takes loops that a consumer's rejections drive for cycles, and others for none, which then never
end. Here the order is that of the deaths.
Where a client has put something else than tables into ``x-death``, or a ``count`` that is no
integer, RabbitMQ's queue crashes; here such entries stay as they are, and such a count begins again.

Sans-IO.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from leveret.amqp.errors import SyntaxError_
from leveret.amqp.properties import Properties, examine, head_of, with_table, without_expiration
from leveret.amqp.tables import S64_MAX, encode_table
from leveret.core.limits import DEATHS_MAX
from leveret.core.message import blind_keys_of, exchange_and_key

if TYPE_CHECKING:
    from leveret.amqp.tables import Field, Table

REJECTED: Final = b"rejected"
EXPIRED: Final = b"expired"
MAXLEN: Final = b"maxlen"
DELIVERY_LIMIT: Final = b"delivery_limit"

_X_DEATH: Final = "x-death"
_CC: Final = "CC"
_INTEGERS: Final = frozenset("bBsuIilL")
_BODY_SIZE: Final = slice(4, 12)  # in a content header


class DeadLetter(NamedTuple):
    """What becomes of a message that died, but for its body.

    Attributes:
        head: its content header.
        keys: to route it by; the first is the routing key it is published with.
        headers: to route it by, decoded.
        persistent: delivery-mode is 2.
        routed_as: the content header to route it by.
    """

    head: bytes
    keys: list[bytes]
    headers: Table
    persistent: bool
    routed_as: bytes


_Table: TypeAlias = tuple[
    "Table", bytes, list[bytes]
]  # headers, the same as they are written, keys


class Deaths:
    """The deaths of messages in one queue, for one reason and in one second.

    Args:
        queue: where they die.
        reason: one of the above.
        time_s: now, seconds since 1970.
        routing_key: the queue's ``x-dead-letter-routing-key``.
    """

    __slots__ = ("_first", "_queue", "_reason", "_routing_key", "_time_s")

    def __init__(self, queue: bytes, reason: bytes, time_s: int, routing_key: bytes | None) -> None:
        self._queue = queue
        self._reason = reason
        self._time_s = time_s
        self._routing_key = routing_key
        self._first: dict[tuple[bytes, str | None], _Table] = {}  # of messages without headers

    def dead_letter(self, origin: bytes, head: bytes) -> DeadLetter:
        """Return the dead letter of a message with this origin and content header.

        Where the header cannot be decoded, the letter has none of its properties.
        """
        try:
            return self._dead_letter(origin, head)
        except SyntaxError_:
            return self._dead_letter(origin, head_without(head))

    def _dead_letter(self, origin: bytes, head: bytes) -> DeadLetter:
        seen = examine(head)
        headers = seen.headers
        if headers:
            table = self._table(origin, headers, seen.expiration)
        else:
            known = self._first.get((origin, seen.expiration))
            table = known or self._table(origin, {}, seen.expiration)
            self._first[origin, seen.expiration] = table
        new_headers, written, keys = table
        new_head = with_table(
            head if seen.expiration is None else without_expiration(head), written
        )
        return DeadLetter(new_head, keys, new_headers, seen.persistent, new_head)

    def _table(self, origin: bytes, headers: Table, expiration: str | None) -> _Table:
        exchange, key = exchange_and_key(origin)
        keys = [key, *carbon_copies(headers)]
        death: Table = {
            "count": ("l", 1),
            "reason": ("S", self._reason),
            "queue": ("S", self._queue),
            "time": ("T", self._time_s),
            "exchange": ("S", exchange),
            "routing-keys": ("A", [("S", each) for each in keys]),
        }
        if expiration is not None:
            text = expiration.encode("utf-8", "surrogateescape")
            death["original-expiration"] = ("S", text)
        headers = _with_death(headers, death)
        if self._routing_key is not None:
            keys = [self._routing_key]
            headers.pop(_CC, None)
        else:
            keys = [*keys, *blind_keys_of(origin)]
        return headers, encode_table(headers, rewritten=True), keys


def head_without(head: bytes) -> bytes:
    """Return a content header for the same body, without properties."""
    return head_of(Properties(), int.from_bytes(head[_BODY_SIZE], "big"))


def carbon_copies(headers: Table) -> list[bytes]:
    """Return the further routing keys in the header ``CC``."""
    kind, values = headers.get(_CC, ("A", ()))
    return [value for letter, value in values if letter == "S"] if kind == "A" else []


def _with_death(headers: Table, death: Table) -> Table:
    headers = dict(headers)
    before = headers.get(_X_DEATH)
    if before is None:
        for name in ("reason", "queue", "exchange"):
            headers[f"x-first-death-{name}"] = death[name]
    if before is None or before[0] != "A":
        headers[_X_DEATH] = ("A", [("F", death)])
    else:
        headers[_X_DEATH] = ("A", _counted(before[1], death))
    return headers


def _counted(deaths: list[Field], death: Table) -> list[Field]:
    """Return the deaths with one more, or with one counted up, which is the first then."""
    pair = _pair(death)
    others: list[Field] = []
    for each in _grouped(deaths):
        if each[0] == "F" and _pair(each[1]) == pair:
            death = each[1] | {"count": ("l", _next_count(each[1].get("count")))}
        else:
            others.append(each)
    return [("F", dict(sorted(death.items()))), *others[: DEATHS_MAX - 1]]


def _grouped(deaths: list[Field]) -> list[Field]:
    """Return several deaths, each pair of queue and reason once, and with its count."""
    if len(deaths) <= 1:
        return deaths
    times: dict[tuple[str, str], int] = {}
    for letter, death in deaths:
        if letter == "F":
            times[_pair(death)] = times.get(_pair(death), 0) + 1
    grouped: list[Field] = []
    for letter, death in deaths:
        if letter != "F":
            grouped.append((letter, death))
        elif count := times.pop(_pair(death), 0):
            counted = death if "count" in death else {"count": ("l", count), **death}
            grouped.append(("F", counted))
    return grouped


def _pair(death: Table) -> tuple[str, str]:
    """Return queue and reason as texts, which compare and hash also if a client has put other values there."""
    return repr(death.get("queue", _NOTHING)[1]), repr(death.get("reason", _NOTHING)[1])


_NOTHING: Final[Field] = ("V", None)


def _next_count(count: Field | None) -> int:
    if count is None or count[0] not in _INTEGERS:
        return 1
    return min(int(count[1]) + 1, S64_MAX)


def died_since_rejection(headers: Table) -> set[str]:
    """Return the queues in which a letter with these headers has died since it was last rejected.

    They are the queues of ``x-death`` before the first ``rejected``. If the letter comes to one of them again, it is in
    a cycle.
    """
    names: set[str] = set()
    kind, deaths = headers.get(_X_DEATH, _NOTHING)
    for letter, death in deaths if kind == "A" else ():
        if letter != "F" or death.get("reason") == ("S", REJECTED):
            break
        kind, name = death.get("queue", _NOTHING)
        if kind == "S":
            names.add(name.decode("utf-8", "surrogateescape"))
    return names


def queues_of(headers: Table) -> list[str]:
    """Return the queues in ``x-death``, the latest first, for the log."""
    kind, deaths = headers.get(_X_DEATH, _NOTHING)
    tables = [death for letter, death in deaths if letter == "F"] if kind == "A" else []
    names = [table.get("queue", _NOTHING) for table in tables]
    return [name.decode("utf-8", "surrogateescape") for letter, name in names if letter == "S"]
