"""PerfTest's options into a ``Scenario``; long names without a short one in brackets are Leveret's."""

from __future__ import annotations

import argparse
import os
import uuid
from collections.abc import Sequence
from typing import Any, NoReturn

from leveret.client.target import parse_uri
from leveret.server.perf.scenario import Scenario
from leveret.server.perf.verify import BODY_BYTES_MIN, LANES_MAX

FLAGS = ("persistent", "mandatory")


class Parser(argparse.ArgumentParser):
    """argparse with one line per error and sysexits' code."""

    def error(self, message: str) -> NoReturn:
        self.exit(os.EX_USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def parser() -> Parser:
    """Return the parser of ``leveret perf``."""
    top = Parser(prog="leveret perf", add_help=False, description=__doc__)
    top.add_argument("-?", "--help", action="help", help="show this page")
    top.add_argument(
        "-h", "--uri", default="amqp://localhost", help="amqp[s]://USER:PASS@HOST:PORT/VHOST"
    )
    top.add_argument("-d", "--id", default="test", help="name of the run in the report")
    _add_shape(top)
    _add_topology(top)
    _add_behaviour(top)
    _add_end(top)
    return top


def _add_shape(top: Parser) -> None:
    top.add_argument("-x", "--producers", type=_count, default=1, help="publishing connections")
    top.add_argument("-y", "--consumers", type=_count, default=1, help="consuming connections")
    top.add_argument("-X", "--producer-channel-count", type=_positive, default=1)
    top.add_argument("-Y", "--consumer-channel-count", type=_positive, default=1)
    top.add_argument(
        "-s", "--size", type=_count, default=0, help=f"bytes, at least {BODY_BYTES_MIN}"
    )
    top.add_argument("--vary", action="store_true", help="message-id and size differ per message")


def _add_topology(top: Parser) -> None:
    top.add_argument("-u", "--queue", help="queue, or several with commas")
    top.add_argument("-qp", "--queue-pattern", metavar="P", help="such as perf-%%d")
    top.add_argument("-qpf", "--queue-pattern-from", type=_count, default=1)
    top.add_argument("-qpt", "--queue-pattern-to", type=_count)
    top.add_argument("-qa", "--queue-args", type=_pairs, default={}, help="KEY=VALUE,...")
    top.add_argument("-ad", "--auto-delete", type=_switch, default=True, help="of queues (true)")
    top.add_argument("-p", "--predeclared", action="store_true", help="declare and delete nothing")
    top.add_argument("-e", "--exchange", help="exchange (name of the type); '' is the default one")
    top.add_argument("-t", "--type", default="direct", help="its type")
    top.add_argument("-k", "--routing-key", help="routing key (a random one)")
    top.add_argument("--bindings", type=_count, default=0, help="topic bindings over the queues")
    top.add_argument("--keys", type=_count, default=0, help="routing keys in turn (as bindings)")


def _add_behaviour(top: Parser) -> None:
    top.add_argument("-q", "--qos", type=_count, default=0, help="prefetch per consumer")
    top.add_argument("-Q", "--global-qos", type=_count, default=0, help="prefetch per channel")
    top.add_argument("-c", "--confirm", type=int, default=-1, help="unconfirmed publishes allowed")
    top.add_argument("-ct", "--confirm-timeout", type=float, default=30, help="s")
    top.add_argument("-r", "--rate", type=float, default=-1, help="per publishing channel and s")
    top.add_argument("-R", "--consumer-rate", type=float, default=-1, help="per consumer and s")
    top.add_argument("-a", "--autoack", action="store_true")
    top.add_argument("-A", "--multi-ack-every", type=_positive, default=1)
    top.add_argument("-f", "--flag", action="append", nargs="+", choices=FLAGS, default=[])
    top.add_argument("-b", "--heartbeat", type=_count, default=0, help="s")
    top.add_argument("-M", "--framemax", type=_count, default=0, help="bytes")


def _add_end(top: Parser) -> None:
    top.add_argument("-z", "--time", type=float, default=0, help="publish so many seconds")
    top.add_argument("-C", "--pmessages", type=_count, default=0, help="per publishing channel")
    top.add_argument("-D", "--cmessages", type=_count, default=0, help="per consumer")
    top.add_argument("-i", "--interval", type=float, default=1, help="between lines, s")
    top.add_argument("--stall", type=float, default=10, help="give up after s without progress")
    top.add_argument("--consume-after", action="store_true", help="measure draining a backlog")
    top.add_argument("--json", metavar="FILE", help="the result as JSON; - prints nothing else")
    top.add_argument("--pid", type=int, action="append", default=[], help="measure its CPU")


def parse(arguments: Sequence[str]) -> Scenario:
    """Return the scenario of the options; a wrong option exits with 64."""
    top = parser()
    options = top.parse_args(arguments)
    try:
        scenario = _scenario(options)
        _check(scenario)
    except ValueError as error:
        top.error(str(error))
    return scenario


def _scenario(options: argparse.Namespace) -> Scenario:
    exchange = options.type if options.exchange is None else options.exchange
    flags = {flag for group in options.flag for flag in group}
    return Scenario(
        target=parse_uri(options.uri, "--uri", "127.0.0.1"),
        id=options.id,
        producers=options.producers,
        consumers=options.consumers,
        producer_channels=options.producer_channel_count,
        consumer_channels=options.consumer_channel_count,
        prefetch=options.qos,
        channel_prefetch=options.global_qos,
        body_bytes=max(options.size, BODY_BYTES_MIN),
        queues=_queues(options),
        pattern=options.queue_pattern is not None,
        queue_arguments=options.queue_args,
        auto_delete=options.auto_delete,
        predeclared=options.predeclared,
        exchange=exchange,
        kind=options.type,
        routing_key=str(uuid.uuid4()) if options.routing_key is None else options.routing_key,
        bindings=options.bindings,
        keys=options.keys or options.bindings,
        confirm=max(options.confirm, 0),
        confirm_timeout_s=options.confirm_timeout,
        rate=max(options.rate, 0),
        consumer_rate=max(options.consumer_rate, 0),
        autoack=options.autoack,
        ack_every=options.multi_ack_every,
        persistent="persistent" in flags,
        mandatory="mandatory" in flags,
        producer_messages=options.pmessages,
        consumer_messages=options.cmessages,
        time_s=options.time,
        interval_s=options.interval,
        stall_s=options.stall,
        heartbeat_s=options.heartbeat,
        frame_max=options.framemax,
        vary=options.vary,
        consume_after=options.consume_after,
        json_file=options.json,
        pids=tuple(options.pid),
    )


def _queues(options: argparse.Namespace) -> tuple[str, ...]:
    if options.queue_pattern is not None:
        if options.queue_pattern_to is None:
            raise ValueError("--queue-pattern needs --queue-pattern-to")
        numbers = range(options.queue_pattern_from, options.queue_pattern_to + 1)
        try:
            return tuple(options.queue_pattern % number for number in numbers)
        except (TypeError, ValueError) as error:
            raise ValueError("--queue-pattern has no %d") from error
    return tuple(name for name in (options.queue or "").split(",") if name)


def _check(scenario: Scenario) -> None:
    queues = len(scenario.queues) or scenario.all_consumers or 1
    if scenario.all_producers * queues > LANES_MAX:
        raise ValueError(f"more than {LANES_MAX} pairs of producers and queues")
    if scenario.bindings and not (scenario.queues and scenario.kind == "topic"):
        raise ValueError("--bindings needs --type topic and queues with names")
    if scenario.consume_after and not (scenario.queues and scenario.producer_messages):
        raise ValueError("--consume-after needs queues with names and --pmessages")
    if scenario.predeclared and not scenario.queues and scenario.consumers:
        raise ValueError("--predeclared needs the queues' names")
    if not (scenario.producers or scenario.consumers):
        raise ValueError("neither producers nor consumers")
    if not scenario.producers and not (scenario.consumer_messages or scenario.time_s):
        raise ValueError("consumers alone need --cmessages or --time")
    if scenario.kind == "headers":
        raise ValueError("--type headers is not supported")


def _count(text: str) -> int:
    if (number := int(text)) < 0:
        raise ValueError(text)
    return number


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


def _switch(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError(text)
    return text == "true"


def _pairs(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in text.split(","):
        key, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(pair)
        is_integer = value.lstrip("-").isdigit()
        found[key] = int(value) if is_integer else value
    return found
