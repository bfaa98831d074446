"""Which permissions each method needs, and the cases that follow: tables only, nothing is sent here.

A name ends with the permissions that the user has on it: ``perm-q-c-r`` may be configured and read, not written. So
the answer to each case follows from its names. A method's needs are listed in RabbitMQ's order of checks; the first one
missing is refused with its text, after them the topic, and only then follows the answer that anyone gets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, product
from typing import Any

from conformance.raw import soft

USER = "perm-user"
CONFIGURE, WRITE, READ = "configure", "write", "read"
PATTERNS = {CONFIGURE: "^perm-.*-c..$", WRITE: "^perm-.*-.w.$", READ: "^perm-.*-..r$"}
TOPIC_PATTERNS = {WRITE: r"^w\.|^{username}\.", READ: r"\.r$"}
_PLACES = {CONFIGURE: -3, WRITE: -2, READ: -1}

GRANTS = ["".join(each) for each in product("c-", "w-", "r-")]
KEYS = ["w.{}.r", "w.{}.-", "-.{}.r", "-.{}.-", USER + ".{}.-"]
PUBLISHED_KEYS = [key.format("published") for key in KEYS]

Error = tuple[str, int, str, str]
Need = tuple[str, str, str]  # queue or exchange, name, permission
Step = tuple[str, dict[str, Any]]  # method, fields

_numbers = count()


@dataclass(frozen=True)
class Case:
    """One method of the user.

    Attributes:
        needs: permissions in the order of the checks.
        topic: exchange, routing key and permission, where topic permissions exist.
        otherwise: the error that a user with all permissions gets; None: the method is answered.
        before: what guest does first.
        probe: how guest sees the effect: ``queue`` or ``exchange`` exists, ``routes`` from exchange by key.
        becomes: what the probe says after the method was answered; the opposite if it was refused.
    """

    method: str
    fields: dict[str, Any]
    needs: tuple[Need, ...] = ()
    topic: tuple[str, str, str] | None = None
    otherwise: Error | None = None
    before: tuple[Step, ...] = ()
    probe: tuple[str, ...] = ()
    becomes: bool = True

    def refusal(self, user: str = USER) -> Error | None:
        """Return the error of the first check that fails."""
        for kind, name, permission in self.needs:
            if user != USER or not is_granted(name, permission):
                text = f"access to {kind} '{name}' in vhost '/' refused for user '{user}'"
                return soft(403, f"ACCESS_REFUSED - {text}", self.method)
        if self.topic and not is_granted_topic(*self.topic[1:]):
            exchange, key, _ = self.topic
            text = f"access to topic '{key}' in exchange '{exchange}' in vhost '/' refused for user '{user}'"
            return soft(403, f"ACCESS_REFUSED - {text}", self.method)
        return None

    def __str__(self) -> str:
        shown = [f"{name}={value}" for name, value in self.fields.items() if value]
        return " ".join([self.method, *shown])


def is_granted(name: str, permission: str) -> bool:
    return name.startswith("perm-") and name[_PLACES[permission]] != "-"


def is_granted_topic(key: str, permission: str) -> bool:
    if permission == WRITE:
        return key.startswith(("w.", f"{USER}."))
    return key.endswith(".r")


def named(role: str, grants: str) -> str:
    """Return the name of something that the test makes once.

    Roles: ``q`` queue, ``l`` queue exclusive to another connection, ``x`` direct, ``f`` fanout and ``i`` internal
    exchange, ``t`` topic exchange with topic permissions, ``u`` topic exchange without, ``none`` does not exist.
    """
    return f"perm-{role}-{grants}"


def _new(grants: str) -> str:
    return f"perm-new{next(_numbers)}-{grants}"


def _missing(kind: str, name: str, method: str) -> Error:
    return soft(404, f"NOT_FOUND - no {kind} '{name}' in vhost '/'", method)


def _locked(name: str, method: str) -> Error:
    return soft(
        405,
        f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{name}' in vhost '/'. It could be originally"
        " declared on another connection or the exclusive property value does not match that of the original declaration.",
        method,
    )


def _default(method: str) -> Error:
    text = "ACCESS_REFUSED - operation not permitted on the default exchange"
    return soft(403, text, method)


# -- queues -------------------------------------------------------------------------------------


def _queue_methods() -> Iterator[Case]:
    for method, grants in product(("queue.purge", "basic.get", "basic.consume"), GRANTS):
        there, missing, locked = (named(role, grants) for role in ("q", "none", "l"))
        for queue, otherwise in (
            (there, None),
            (missing, _missing("queue", missing, method)),
            (locked, _locked(locked, method)),
        ):
            needs = (("queue", queue, READ),)
            yield Case(method, {"queue": queue}, needs, otherwise=otherwise)
    for grants in GRANTS:
        yield _deletion(locked := named("l", grants), otherwise=_locked(locked, "queue.delete"))
        yield _deletion(named("none", grants))
        made = _new(grants)
        before = (("queue.declare", {"queue": made}),)
        yield _deletion(made, before=before, probe=("queue", made), becomes=False)


def _deletion(queue: str, **more: Any) -> Case:
    return Case("queue.delete", {"queue": queue}, (("queue", queue, CONFIGURE),), **more)


def _queue_declarations() -> Iterator[Case]:
    method = "queue.declare"
    for grants in GRANTS:
        there, missing, locked = (named(role, grants) for role in ("q", "none", "l"))
        is_locked = _locked(locked, method)
        yield _declaration(there)
        yield _declaration(locked, otherwise=is_locked)
        for queue, otherwise in (
            (there, None),
            (missing, _missing("queue", missing, method)),
            (locked, is_locked),
        ):
            yield Case(method, {"queue": queue, "passive": True}, otherwise=otherwise)
        for is_exclusive in (False, True):
            yield _declaration(made := _new(grants), exclusive=is_exclusive, probe=("queue", made))
            for target in _targets():
                yield _dead_lettering(_new(grants), target, is_exclusive)
        for target in (named("x", "cwr"), named("x", "---")):
            made, arguments = _new(grants), {"x-dead-letter-exchange": target}
            before = ((method, {"queue": made, "arguments": arguments}),)
            yield _declaration(made, arguments=arguments, before=before)


def _declaration(
    queue: str,
    *,
    exclusive: bool = False,
    arguments: dict[str, Any] | None = None,
    **more: Any,
) -> Case:
    fields = {"queue": queue, "exclusive": exclusive, "arguments": arguments or {}}
    return Case("queue.declare", fields, (("queue", queue, CONFIGURE),), **more)


def _targets() -> Iterator[str]:
    """Yield dead-letter and alternate exchanges: existing, missing, and the default one."""
    yield from (named("x", grants) for grants in GRANTS)
    yield from (named("none", "cwr"), named("none", "c-r"), "")


def _dead_lettering(queue: str, target: str, is_exclusive: bool) -> Case:
    arguments = {"x-dead-letter-exchange": target}
    needs = (
        ("queue", queue, CONFIGURE),
        ("queue", queue, READ),
        ("exchange", target or "amq.default", WRITE),
    )
    fields = {"queue": queue, "exclusive": is_exclusive, "arguments": arguments}
    return Case("queue.declare", fields, needs, probe=("queue", queue))


# -- exchanges ----------------------------------------------------------------------------------


def _exchange_declarations() -> Iterator[Case]:
    method = "exchange.declare"
    for grants in GRANTS:
        there, missing, made = named("x", grants), named("none", grants), _new(grants)
        of_one = {"exchange": there, "type": "direct"}
        yield Case(method, of_one, (("exchange", there, CONFIGURE),))
        yield Case(method, of_one | {"passive": True})
        error = _missing("exchange", missing, method)
        yield Case(method, {"exchange": missing, "passive": True}, otherwise=error)
        needs = (("exchange", made, CONFIGURE),)
        yield Case(method, {"exchange": made, "type": "topic"}, needs, probe=("exchange", made))
        for target in _targets():
            made = _new(grants)
            needs = (
                ("exchange", made, CONFIGURE),
                ("exchange", made, READ),
                ("exchange", target or "amq.default", WRITE),
            )
            yield Case(method, _alternating(made, target), needs, probe=("exchange", made))
        for target in (named("x", "cwr"), named("x", "---")):
            fields = _alternating(made := _new(grants), target)
            needs = (("exchange", made, CONFIGURE),)
            yield Case(method, fields, needs, before=((method, fields),))


def _alternating(exchange: str, target: str) -> dict[str, Any]:
    return {"exchange": exchange, "type": "direct", "arguments": {"alternate-exchange": target}}


def _exchange_deletions() -> Iterator[Case]:
    for grants in GRANTS:
        missing, made = named("none", grants), _new(grants)
        yield _exchange_deletion(missing)
        before = (("exchange.declare", {"exchange": made, "type": "fanout"}),)
        yield _exchange_deletion(made, before=before, probe=("exchange", made), becomes=False)


def _exchange_deletion(exchange: str, **more: Any) -> Case:
    needs = (("exchange", exchange, CONFIGURE),)
    return Case("exchange.delete", {"exchange": exchange}, needs, **more)


# -- bindings -----------------------------------------------------------------------------------


def _bindings() -> Iterator[Case]:
    for kind, verb in product(("queue", "exchange"), ("bind", "unbind")):
        destinations = [named("q" if kind == "queue" else "f", grants) for grants in GRANTS]
        for destination, grants in product(destinations, GRANTS):
            yield _binding(kind, verb, destination, named("x", grants), "k{}")
        some = [destinations[GRANTS.index("-w-")], destinations[GRANTS.index("---")]]
        for destination, grants, key in product(some, GRANTS, KEYS):
            yield _binding(kind, verb, destination, named("t", grants), key)
        yield _binding(kind, verb, some[0], named("u", "--r"), "-.{}.-")
        yield from _bindings_of_nothing(kind, verb, destinations, some)


def _bindings_of_nothing(
    kind: str, verb: str, destinations: list[str], some: list[str]
) -> Iterator[Case]:
    """Yield bindings with an end that is missing, the default exchange, or locked."""
    method, is_bind = f"{kind}.{verb}", verb == "bind"
    for destination, grants in product(some, GRANTS):
        source = named("none", grants)
        error = _missing("exchange", source, method) if is_bind else None
        yield _binding(kind, verb, destination, source, "k{}", error, is_real=False)
    for grants in GRANTS:
        missing = named("none", grants)
        error = _missing(kind, missing, method) if is_bind else None
        yield _binding(kind, verb, missing, named("x", "--r"), "k{}", error, is_real=False)
    for destination in destinations:
        fields = _ends(kind, destination, "", "k")
        needs = ((kind, destination, WRITE),)
        yield Case(method, fields, needs, otherwise=_default(method))
    if kind == "queue":
        for grants, readable in product(GRANTS, ("--r", "---")):
            locked = named("l", grants)
            error = _locked(locked, method) if is_bind else None
            yield _binding(kind, verb, locked, named("x", readable), "k{}", error, is_real=False)


def _ends(kind: str, destination: str, source: str, key: str) -> dict[str, Any]:
    names = ("queue", "exchange") if kind == "queue" else ("destination", "source")
    return {names[0]: destination, names[1]: source, "routing_key": key}


def _binding(
    kind: str,
    verb: str,
    destination: str,
    source: str,
    key: str,
    otherwise: Error | None = None,
    *,
    is_real: bool = True,
) -> Case:
    key = key.format(next(_numbers))
    fields = _ends(kind, destination, source, key)
    needs = ((kind, destination, WRITE), ("exchange", source, READ))
    has_topics = source.startswith("perm-t-")
    return Case(
        f"{kind}.{verb}",
        fields,
        needs,
        topic=(source, key, READ) if has_topics else None,
        otherwise=otherwise,
        before=((f"{kind}.bind", fields),) if is_real and verb == "unbind" else (),
        probe=("routes", source, key) if is_real else (),
        becomes=verb == "bind",
    )


# -- messages -----------------------------------------------------------------------------------


def _publishes() -> Iterator[Case]:
    method, key = "basic.publish", PUBLISHED_KEYS[3]
    for grants in GRANTS:
        for role in "xfu":
            yield _publish(named(role, grants), key)
        missing, internal = named("none", grants), named("i", grants)
        yield _publish(missing, key, otherwise=_missing("exchange", missing, method))
        text = f"ACCESS_REFUSED - cannot publish to internal exchange '{internal}' in vhost '/'"
        yield _publish(internal, key, otherwise=soft(403, text, method))
        for topic in PUBLISHED_KEYS:
            exchange = named("t", grants)
            yield _publish(exchange, topic, topic=(exchange, topic, WRITE))
    yield _publish("", named("q", "cwr"))


def _publish(exchange: str, key: str, **more: Any) -> Case:
    fields = {"exchange": exchange, "routing_key": key}
    needs = (("exchange", exchange or "amq.default", WRITE),)
    return Case("basic.publish", fields, needs, probe=("published",), **more)


CASES = [
    *_queue_methods(),
    *_queue_declarations(),
    *_exchange_declarations(),
    *_exchange_deletions(),
    *_bindings(),
    *_publishes(),
]

NEED_NONE = {
    "access.request", "basic.ack", "basic.cancel", "basic.nack", "basic.qos", "basic.recover", "basic.recover-async",
    "basic.reject", "channel.close", "channel.flow", "channel.open", "confirm.select", "tx.commit", "tx.rollback", "tx.select",
}  # fmt: skip
"""Methods on a channel that need no permission; all others have cases."""
