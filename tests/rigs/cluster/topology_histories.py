"""Clients of real nodes that declare, bind and delete the same few names at once, and what is to be thought of it.

A *pair* is a queue, an exchange and the binding between them: one object of ``tests/rigs/metadata/linearizability.py``.
What a declaration finds is read off the text of its 406: queues differ in ``x-max-length``, exchanges in
``alternate-exchange``. So a history says which declaration was there.

Operations that were answered with ok must have one order. An operation that only *looks*, or was refused, was told what
one node had at that moment, and need not wait for what is under way: each by itself must fit among the others, so it
never shows a state older than what was answered before.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random
from typing import NamedTuple, TypeAlias

from conformance.raw import Channel, Connection, Event
from rigs.metadata.linearizability import Operation, is_explained

KEY = "k"
PATIENCE_S = 60.0  # on a machine with much to do
IDENTITIES = (1, 2, 3)
LOOKS = ("look for queue", "look for exchange", "publish")
CHANGES = (
    "declare queue", "declare queue", "delete queue", "declare exchange", "declare exchange",
    "delete exchange", "bind", "bind", "bind", "unbind",
)  # fmt: skip
NO_QUEUE, NO_EXCHANGE, BOUND, NOT_BOUND = "no queue", "no exchange", "bound", "not bound"
Address: TypeAlias = Callable[[], tuple[str, int]]
_CURRENT = re.compile(r"but current is '(?:ae)?(\d+)'")


class Pair(NamedTuple):
    """What there is: identities of queue and exchange, and whether they are bound."""

    queue: int | None = None
    exchange: int | None = None
    is_bound: bool = False


def pair_after(operation: Operation, pair: Pair) -> tuple[bool, Pair]:
    """Return whether an operation can take effect, and what there is then."""
    missing = NO_EXCHANGE if pair.exchange is None else NO_QUEUE if pair.queue is None else None
    answer: object = None
    match operation.kind:
        case "declare queue":
            pair = pair._replace(queue=pair.queue or operation.identity)
            answer = pair.queue
        case "declare exchange":
            pair = pair._replace(exchange=pair.exchange or operation.identity)
            answer = pair.exchange
        case "delete queue":
            pair = Pair(None, pair.exchange)
        case "delete exchange":
            pair = Pair(pair.queue, None)
        case "unbind":
            pair = Pair(pair.queue, pair.exchange)
        case "bind":
            answer = missing
            pair = pair._replace(is_bound=missing is None)
        case look:
            answer = _seen(look, pair)
    if answer == NO_EXCHANGE and operation.answer == _instead(operation.kind, pair):
        answer = operation.answer
    return operation.answered_at is None or operation.answer == answer, pair


def _instead(kind: str, pair: Pair) -> str | None:
    """Return what may be answered where the exchange is missing: its node knows one that it is still declaring."""
    if kind == "bind":
        return NO_QUEUE if pair.queue is None else None
    return NOT_BOUND if kind == "publish" else None


def _seen(look: str, pair: Pair) -> object:
    """Return what a look at a pair answers."""
    if look == "look for queue":
        return NO_QUEUE if pair.queue is None else None
    if look == "look for exchange" or pair.exchange is None:
        return NO_EXCHANGE if pair.exchange is None else None
    return BOUND if pair.is_bound else NOT_BOUND


def judge(history: Sequence[Operation]) -> str:
    """Return what is wrong with the history of one pair; "": nothing."""
    looks = [each for each in history if _is_look(each)]
    changes = [each for each in history if not _is_look(each)]
    if not is_explained(changes, Pair(), pair_after, _is_look):
        return "changes have no order:\n" + _first_that_have_none(changes)
    for look in looks:
        around = _until(look.answered_at, changes)
        if not is_explained([*around, look], Pair(), pair_after, _is_look):
            return "a look fits nowhere:\n" + _lines([*around, look])
    return ""


def _is_look(operation: Operation) -> bool:
    if operation.kind in LOOKS:
        return True
    is_declaration = operation.kind.startswith("declare")
    is_refused = operation.answer != (operation.identity if is_declaration else None)
    return operation.answered_at is not None and is_refused


def _until(moment: float | None, changes: Sequence[Operation]) -> list[Operation]:
    """Return the changes as they were known at a moment; None: all of them."""
    if moment is None:
        return list(changes)
    return [
        each
        if each.answered_at is not None and each.answered_at <= moment
        else replace(each, answered_at=None, answer=None)
        for each in changes
        if each.called_at <= moment
    ]


def _first_that_have_none(changes: Sequence[Operation]) -> str:
    """Return the lines of the first changes that have no order."""
    moments = sorted(each.answered_at for each in changes if each.answered_at is not None)
    for moment in moments:
        some = _until(moment, changes)
        if not is_explained(some, Pair(), pair_after, _is_look):
            return _lines(some)
    return _lines(changes)


def _lines(history: Sequence[Operation]) -> str:
    """Return a line for each operation, the first of them at 0 s."""
    ordered = sorted(history, key=lambda each: each.called_at)
    zero = ordered[0].called_at
    return "\n".join(
        f"{each.called_at - zero:8.4f} to "
        f"{'ever' if each.answered_at is None else f'{each.answered_at - zero:.4f}'}: "
        f"{each.kind} {each.identity} -> {each.answer}"
        for each in ordered
    )


def found_by_refusal(text: str) -> int | str | None:
    """Return what a refused operation has found, by the text of its channel.close; None: it does not say."""
    current = _CURRENT.search(text)
    if current is not None:
        return int(current[1])
    return next((each for each in (NO_QUEUE, NO_EXCHANGE) if f"NOT_FOUND - {each} " in text), None)


class Client:
    """One client, which moves on to the next node when its connection is lost.

    Args:
        addresses: where each node is now; it begins with the first.
        random: chooses what it does.
        is_durable: what it declares.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        random: Random,
        is_durable: bool,
    ) -> None:
        self._addresses = list(addresses)
        self._random = random
        self._is_durable = is_durable
        self._connection: Connection | None = None
        self._channel: Channel | None = None

    def operate(self, name: str) -> Operation:
        """Do something to a pair; return what was answered."""
        channel = self._opened()
        kind = self._random.choice((*CHANGES, *LOOKS))
        operation = Operation(kind, self._random.choice(IDENTITIES), time.monotonic())
        if channel is None:
            return operation
        try:
            operation.answer = self._answer(channel, operation, name)
        except (OSError, _UnknownError):
            self.close()
        else:
            operation.answered_at = time.monotonic()
        return operation

    def close(self) -> None:
        """Drop the connection."""
        if self._connection is not None:
            self._connection.drop()
        self._connection = self._channel = None

    def _opened(self) -> Channel | None:
        try:
            if self._connection is None:
                self._connection = Connection(self._addresses[0]())
                self._connection.answer_timeout_s = PATIENCE_S
                if self._connection.open().name != "connection.open-ok":
                    raise ConnectionError
            if self._channel is None:
                self._channel = self._connection.channel()
                self._channel.ok("confirm.select")
        except (OSError, AssertionError):
            self.close()
            self._addresses.append(self._addresses.pop(0))
            time.sleep(0.05)
        return self._channel

    def _answer(self, channel: Channel, operation: Operation, name: str) -> object:
        if operation.kind == "publish":
            return self._published(channel, name)
        method, fields = self._method(operation, name)
        reply = channel.call(method, **fields)
        if reply.name == f"{method}-ok":
            return operation.identity if operation.kind.startswith("declare") else None
        return self._refused(reply)

    def _method(self, operation: Operation, name: str) -> tuple[str, dict[str, object]]:
        is_durable, number = self._is_durable, operation.identity
        both = {"queue": name, "exchange": name, "routing_key": KEY}
        limit, alternate = {"x-max-length": number}, {"alternate-exchange": f"ae{number}"}
        methods: dict[str, tuple[str, dict[str, object]]] = {
            "declare queue": (
                "queue.declare", {"queue": name, "durable": is_durable, "arguments": limit},
            ),
            "declare exchange": (
                "exchange.declare",
                {"exchange": name, "type": "direct", "durable": is_durable, "arguments": alternate},
            ),
            "delete queue": ("queue.delete", {"queue": name}),
            "delete exchange": ("exchange.delete", {"exchange": name}),
            "bind": ("queue.bind", both),
            "unbind": ("queue.unbind", both),
            "look for queue": ("queue.declare", {"queue": name, "passive": True}),
            "look for exchange": (
                "exchange.declare", {"exchange": name, "type": "direct", "passive": True},
            ),
        }  # fmt: skip
        return methods[operation.kind]

    def _published(self, channel: Channel, name: str) -> object:
        channel.publish(KEY, exchange=name, mandatory=True)
        answer: object = BOUND
        while True:
            event = channel.read(PATIENCE_S)
            if event.name == "basic.return":
                answer = NOT_BOUND
            elif event.name == "basic.ack":
                return answer
            elif event.name != "basic.nack":  # a queue was deleted, or its node is lost
                return self._refused(event)
            else:
                raise _UnknownError

    def _refused(self, reply: Event) -> object:
        """Return what a channel.close says of the pair; the channel is opened again."""
        if reply.name != "channel.close" or self._channel is None:
            raise _UnknownError
        self._channel.send("channel.close-ok")
        self._channel = None
        found = found_by_refusal(str(reply.reply_text))
        if found is None:
            raise _UnknownError
        return found


class _UnknownError(Exception):
    """An operation was not answered, or with an error: it may have been made or not."""


def histories(
    addresses: Sequence[Address],
    seed: int,
    *,
    names: Sequence[str],
    clients: int,
    operations: int,
    is_durable: bool,
    pause_s: float = 0.0,
) -> dict[str, list[Operation]]:
    """Let clients, spread over nodes, change pairs at once; return the history of each pair.

    Args:
        addresses: where each node is now.
        seed: of the clients' choices.
        names: of the pairs.
        clients: how many there are.
        operations: of each client.
        is_durable: what they declare.
        pause_s: of a client between two operations, at most.
    """
    found: dict[str, list[Operation]] = defaultdict(list)

    def run(number: int) -> None:
        random = Random(seed * 1000 + number)
        own = [*addresses[number % len(addresses) :], *addresses[: number % len(addresses)]]
        client = Client(own, random, is_durable)
        for _ in range(operations):
            name = random.choice(names)
            found[name].append(client.operate(name))
            time.sleep(random.random() * pause_s)
        client.close()

    with ThreadPoolExecutor(clients) as threads:
        list(threads.map(run, range(clients)))
    return found
