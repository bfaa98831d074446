"""Attacks on a broker: one program each, run again and again until its time is over.

    python -P attacks.py NAME HOST PORT SECONDS DATA

They work in a vhost of their own, as a user with all permissions there; two use the control socket in the data folder
as well. ``ATTACKS`` names them all. An attack may be refused, blocked or cut off at any point: that ends one run of it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import resource
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from attacks.peer import PASSWORD, USER, VHOST, Peer, close_all, dials, publish, send_for
from conformance import wire
from conformance.raw import Connection
from leveret.server.control_client import SOCKET, ask, short_alias

Address = tuple[str, int]
ATTACKS: dict[str, Callable[[Address], None]] = {}
_BIG_NAME = "n" * 240
# How long an attack holds its sockets, and lets the broker accept them first: the broker tells it neither.
_HELD_S = 5.0
_ACCEPTED_S = 0.5


def attack(function: Callable[[Address], None]) -> Callable[[Address], None]:
    ATTACKS[function.__name__] = function
    return function


# -- connections -------------------------------------------------------------------------------


@attack
def silent_sockets(address: Address) -> None:
    """Open a thousand sockets that never log in."""
    sockets = dials(address, 1_000)
    time.sleep(_HELD_S)
    close_all(sockets)


@attack
def headers_only(address: Address) -> None:
    """Open sockets that say the protocol header and no more."""
    sockets = dials(address, 500)
    time.sleep(_ACCEPTED_S)
    for each in sockets:
        send_for(each, b"AMQP\0\0\x09\x01", 1.0)
    time.sleep(_HELD_S)
    close_all(sockets)


@attack
def connects(address: Address) -> None:
    """Connect five thousand times, a thousand at once, and leave."""
    for _ in range(5):
        close_all(dials(address, 1_000))


@attack
def bad_logins(address: Address) -> None:
    """Guess passwords, two hundred sockets at a time."""
    guess = wire.method(
        "connection.start-ok",
        client_properties={},
        mechanism="PLAIN",
        response="\0guest\0wrong",
        locale="en_US",
    )
    sockets = dials(address, 200)
    time.sleep(0.1)  # the pace: two thousand guesses a second
    for each in sockets:
        send_for(each, b"AMQP\0\0\x09\x01" + wire.frame(wire.METHOD, 0, guess), 1.0)
    close_all(sockets)


@attack
def rubbish(address: Address) -> None:
    """Send random bytes before and after the login."""
    rng = random.Random()
    for each in dials(address, 100):
        send_for(each, rng.randbytes(4_000), 1.0)
        each.close()
    for _ in range(50):
        peer = Peer(address)
        peer.raw(rng.randbytes(100_000))
        peer.flush()
        peer.drop()


@attack
def connection_churn(address: Address) -> None:
    """Log in and close, over and over."""
    for _ in range(200):
        Peer(address).connection.close()


@attack
def many_channels(address: Address) -> None:
    """Open all channels of some connections, then drop these."""
    peers = [Peer(address) for _ in range(5)]
    for peer in peers:
        for channel in range(2, 2_048):
            peer.put("channel.open", channel)
        peer.settle()
    for peer in peers:
        peer.drop()


@attack
def channel_errors(address: Address) -> None:
    """Provoke channel errors as fast as they come."""
    peer = Peer(address)
    for channel in range(2, 2_000):
        peer.put("channel.open", channel)
        peer.put("queue.declare", channel, queue="no such queue", passive=True)
        peer.put("channel.close-ok", channel)
    peer.settle()
    peer.drop()


@attack
def all_channels(address: Address) -> None:
    """Open all channels of thirty-two connections, close one half of these, and drop the other."""
    peers = [Peer(address) for _ in range(32)]
    for peer in peers:
        for channel in range(2, 2_048):
            peer.put("channel.open", channel)
        peer.settle()
    for number, peer in enumerate(peers):
        if number % 2:
            peer.connection.close()
        else:
            peer.drop()


@attack
def part_lines(address: Address) -> None:
    """Send parts of long lists to the control socket from all clients that are served, and no request."""
    part = b'{"part":["document","queues"],"items":[%b]}\n' % b",".join([b"[]"] * 40_000)
    with contextlib.ExitStack() as open_clients, short_alias(Path(sys.argv[5], SOCKET)) as control:
        clients = [open_clients.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(15)]
        for client in clients:
            client.connect(control)
        for _ in range(200):
            for client in clients:
                with contextlib.suppress(ConnectionError):  # the others go on
                    send_for(client, part, 1.0)


# -- large bodies, output that nobody reads ----------------------------------------------------


@attack
def half_bodies(address: Address) -> None:
    """Send half of twenty bodies of 128 MiB, and leave without a word, or behind bytes that are no frame."""
    method = wire.frame(wire.METHOD, 1, wire.method("basic.publish", routing_key="none"))
    start = method + wire.frame(wire.HEADER, 1, wire.head(128 << 20))
    piece = wire.frame(wire.BODY, 1, bytes(131_064))
    peers = [Peer(address) for _ in range(20)]
    for peer in peers:
        if not send_for(peer.connection.socket, start, 1.0):
            continue
        for _ in range(64 << 3):
            if not send_for(peer.connection.socket, piece, 1.0):
                break
    for number, peer in enumerate(peers):
        if number % 2:
            send_for(peer.connection.socket, b"not a frame", 1.0)
        peer.drop()


@attack
def byte_frames(address: Address) -> None:
    """Publish two bodies of 32 MiB in frames of one byte."""
    method = wire.frame(wire.METHOD, 1, wire.method("basic.publish", routing_key="none"))
    frames = wire.frame(wire.BODY, 1, b"x") * (1 << 15)
    peers = [Peer(address) for _ in range(2)]
    for peer in peers:
        peer.raw(method + wire.frame(wire.HEADER, 1, wire.head(32 << 20)))
    for _ in range(32 << 5):
        for peer in peers:
            peer.raw(frames)
    for peer in peers:
        peer.settle()
        peer.drop()


@attack
def deaf_consumer(address: Address) -> None:
    """Publish large messages to a queue whose consumer does not read."""
    deaf, peer = Peer(address), Peer(address)
    peer.call("queue.declare", queue="deaf", auto_delete=True)
    deaf.put("basic.consume", queue="deaf", no_ack=True, nowait=True)
    deaf.flush()
    for _ in range(300):
        peer.publish("deaf", bytes(1 << 20))
    peer.flush()
    deaf.drop()
    peer.drop()


@attack
def slow_firehose(address: Address) -> None:
    """Read copies of all messages slowly, and publish messages whose copies are much larger than they."""
    ask(Path(sys.argv[5]), "trace_on", {"vhost": VHOST})
    slow, peer = Peer(address), Peer(address)
    slow.call("queue.declare", queue="copies", exclusive=True)
    slow.call("queue.bind", queue="copies", exchange="amq.rabbitmq.trace", routing_key="#")
    slow.put("basic.consume", queue="copies", no_ack=True, nowait=True)
    slow.flush()
    for number in range(500):
        name = f"{_BIG_NAME}{number}"
        peer.put("queue.declare", queue=name, exclusive=True, nowait=True)
        peer.put("queue.bind", queue=name, exchange="amq.fanout", nowait=True)
    peer.settle()
    headers = {f"k{number}": "v" for number in range(5_000)}
    one = publish("", b"x", "amq.fanout") * 10 + publish("", b"x", "amq.headers", headers=headers)
    slow.connection.socket.setblocking(False)
    for _ in range(300):
        peer.raw(one)
        peer.flush()
        with contextlib.suppress(BlockingIOError):
            slow.connection.socket.recv(1 << 14)
    peer.settle()
    slow.drop()
    peer.drop()


@attack
def unread_replies(address: Address) -> None:
    """Ask for answers, and read none."""
    connection = Connection(address)
    connection.open(user=USER, password=PASSWORD, vhost=VHOST)
    connection.channel()
    asking = wire.frame(wire.METHOD, 1, wire.method("channel.flow", active=True)) * 10_000
    connection.socket.settimeout(2)
    try:
        for _ in range(100):
            connection.socket.sendall(asking)
    except TimeoutError:
        pass
    connection.drop()


@attack
def wide_bodies(address: Address) -> None:
    """Fan 64 KiB out to a thousand queues."""
    peer = Peer(address)
    for number in range(1_000):
        peer.put("queue.declare", queue=f"wide{number}", exclusive=True, nowait=True)
        peer.put("queue.bind", queue=f"wide{number}", exchange="amq.fanout", nowait=True)
    peer.settle()
    for number in range(1_000):
        peer.put("basic.consume", queue=f"wide{number}", no_ack=True, nowait=True)
    peer.settle()
    for _ in range(20):
        peer.publish("", bytes(1 << 16), "amq.fanout")
    peer.settle()
    peer.drop()


# -- routing -----------------------------------------------------------------------------------


@attack
def topic_wildcards(address: Address) -> None:
    """Bind with many wildcards, and publish keys of many words with CC."""
    peer = Peer(address)
    peer.call("exchange.declare", exchange="wild", type="topic", auto_delete=True)
    peer.call("queue.declare", queue="wild", exclusive=True)
    rng = random.Random()
    for _ in range(4_000):
        words = [rng.choice(["#.a", "#.b", "*", "#.*"]) for _ in range(20)]
        key = ".".join(words)[:250]
        peer.put("queue.bind", queue="wild", exchange="wild", routing_key=key, nowait=True)
    peer.settle()
    for _ in range(20):
        keys = [".".join(rng.choice("abc") for _ in range(125)) for _ in range(11)]
        peer.publish(keys[0], b"", "wild", headers={"CC": keys[1:]})
    peer.settle()
    peer.drop()


@attack
def words_between(address: Address) -> None:
    """Bind with wildcards between all words, and publish keys that match up to the last word."""
    peer, rng = Peer(address), random.Random()
    peer.call("exchange.declare", exchange="between", type="topic", auto_delete=True)
    peer.call("queue.declare", queue="between", exclusive=True)
    for _ in range(1_500):
        key = ".".join([*rng.choices(["#.a", "#.b"], k=60), "z"])
        peer.put("queue.bind", queue="between", exchange="between", routing_key=key, nowait=True)
    peer.settle()
    for _ in range(5):
        keys = [".".join(rng.choices("ab", k=120)) for _ in range(20)]
        peer.publish(keys[0], b"", "between", headers={"CC": keys[1:]})
    peer.settle()
    peer.drop()


@attack
def headers_bindings(address: Address) -> None:
    """Bind with a hundred thousand rules, and publish messages with differing headers."""
    peer = Peer(address)
    peer.call("exchange.declare", exchange="rules", type="headers", auto_delete=True)
    peer.call("queue.declare", queue="rules", exclusive=True)
    for number in range(100_000):
        rule = {"x-match": "all" if number % 2 else "any", f"k{number}": number, "same": 1}
        peer.put("queue.bind", queue="rules", exchange="rules", arguments=rule, nowait=True)
    peer.settle()
    for number in range(2_000):
        peer.publish("", b"", "rules", headers={f"k{number}": number, "same": 1, "n": number})
    peer.settle()
    peer.drop()


@attack
def chained_exchanges(address: Address) -> None:
    """Publish through a chain of two thousand exchanges, which all lead to the next ones."""
    peer = Peer(address)
    for number in range(2_000):
        peer.put("exchange.declare", exchange=f"chain{number}", type="fanout", nowait=True)
    for number in range(1_990):
        for step in range(1, 10):
            peer.put(
                "exchange.bind",
                destination=f"chain{number + step}",
                source=f"chain{number}",
                nowait=True,
            )
    peer.settle()
    for number in range(200):
        peer.publish(f"{number}", b"", "chain0")
    peer.settle()
    for number in range(2_000):
        peer.put("exchange.delete", exchange=f"chain{number}", nowait=True)
    peer.settle()
    peer.drop()


@attack
def fresh_routes(address: Address) -> None:
    """Make routes to five thousand queues, four thousand of them."""
    peer = Peer(address)
    for number in range(5_000):
        peer.put("queue.declare", queue=f"routed{number}", exclusive=True, nowait=True)
        peer.put("queue.bind", queue=f"routed{number}", exchange="amq.fanout", nowait=True)
    peer.settle()
    for number in range(4_000):
        peer.publish(f"{number}", b"", "amq.fanout")
    peer.settle()
    peer.drop()


@attack
def evil_names(address: Address) -> None:
    """Declare names that a permission's expression backtracks over, and that terminals obey."""
    peer = Peer(address)
    for name in ("a" * 26 + "!", "a-" * 120, "\x1b[2J\x9b31m\r\nx", "\u202egnp.exe"):
        for prefix in ("slow-", ""):
            peer.put("channel.open", 2)
            peer.put("queue.declare", 2, queue=prefix + name, exclusive=True)
            peer.put("channel.close", 2, reply_code=200, reply_text=name[:200])
    peer.settle()
    peer.drop()


# -- dead letters ------------------------------------------------------------------------------


def new_name() -> str:
    """Return the name of a queue that no run before this one has used.

    It begins with a capital: the attacker's slow permission expression backtracks over small letters.
    """
    return f"N{os.urandom(8).hex()}"


def row_of_queues(peer: Peer, count: int, ttl_ms: int, *, ring: bool) -> str:
    """Declare queues that dead-letter each to the next, and return the first one's name."""
    row = new_name()
    for number in range(count):
        key = f"{row}.{(number + 1) % count if ring else number + 1}"
        arguments = {
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": key,
            "x-message-ttl": ttl_ms,
        }
        name = f"{row}.{number}"
        peer.put("queue.declare", queue=name, exclusive=True, arguments=arguments, nowait=True)
    peer.settle()
    return f"{row}.0"


def publish_and_stay(peer: Peer, queue: str, count: int, stay_s: float = _HELD_S) -> None:
    """Publish empty messages, and leave after some time."""
    for _ in range(count):
        peer.publish(queue)
    peer.settle()
    time.sleep(stay_s)
    peer.drop()


@attack
def dead_letter_chain(address: Address) -> None:
    """Send twenty thousand messages along a chain of five hundred queues, each dead-lettering to the next."""
    peer = Peer(address)
    publish_and_stay(peer, row_of_queues(peer, 500, 0, ring=False), 20_000)


@attack
def dead_letter_ring(address: Address) -> None:
    """Let three hundred messages go round a hundred queues, one millisecond in each."""
    peer = Peer(address)
    publish_and_stay(peer, row_of_queues(peer, 100, 1, ring=True), 300)


@attack
def dead_letter_fan(address: Address) -> None:
    """Let one message multiply: twenty queues of no TTL dead-letter to an exchange that leads to all of them."""
    peer, fan = Peer(address), new_name()
    peer.call("exchange.declare", exchange=fan, type="fanout", auto_delete=True)
    arguments = {"x-message-ttl": 0, "x-dead-letter-exchange": fan}
    for _ in range(20):
        name = new_name()
        peer.put("queue.declare", queue=name, exclusive=True, arguments=arguments, nowait=True)
        peer.put("queue.bind", queue=name, exchange=fan, nowait=True)
    peer.settle()
    peer.publish("", b"", fan)
    peer.settle()
    time.sleep(_HELD_S)
    peer.drop()


@attack
def long_x_death(address: Address) -> None:
    """Send twenty messages round three thousand queues: at each they get one more entry of x-death."""
    peer = Peer(address)
    publish_and_stay(peer, row_of_queues(peer, 3_000, 0, ring=True), 20, _HELD_S * 3)


@attack
def tables_at_once(address: Address) -> None:
    """Publish header tables of 120 KB from twenty connections at once."""
    peers = [Peer(address) for _ in range(20)]
    headers = {f"k{number}": number for number in range(9_000)}
    one = publish("", b"", "amq.headers", headers=headers)
    peers[0].call("queue.declare", queue="tables", exclusive=True)
    rule = {"x-match": "all", "k1": 1}
    peers[0].call("queue.bind", queue="tables", exchange="amq.headers", arguments=rule)
    for _ in range(20):
        for peer in peers:
            peer.raw(one)
    for peer in peers:
        peer.flush()
    for peer in peers:
        peer.settle()
        peer.drop()


@attack
def patterns_of_many_channels(address: Address) -> None:
    """Declare and bind with hostile patterns on five hundred channels, in one write."""
    peer = Peer(address)
    rng = random.Random()
    for channel in range(2, 502):
        peer.put("channel.open", channel)
    for channel in range(2, 502):
        name = f"pattern{channel}"
        peer.put("queue.declare", channel, queue=name, exclusive=True, nowait=True)
        key = ".".join(rng.choice(["#", "*", "#.a"]) for _ in range(100))[:250]
        peer.put(
            "queue.bind", channel, queue=name, exchange="amq.topic", routing_key=key, nowait=True
        )
    for channel in range(2, 502):
        peer.publish(".".join(rng.choice("ab") for _ in range(120)), b"", "amq.topic", channel)
    peer.settle()
    peer.drop()


# -- memory ------------------------------------------------------------------------------------


@attack
def credit_rows(address: Address) -> None:
    """Publish one message from each of three hundred channels to each of five thousand queues."""
    peer = Peer(address)
    for number in range(5_000):
        peer.put("queue.declare", queue=f"row{number}", exclusive=True, nowait=True)
    peer.settle()
    for channel in range(2, 310):
        peer.put("channel.open", channel)
        for number in range(5_000):
            peer.publish(f"row{number}", b"", channel=channel)
    peer.settle()
    peer.drop()


@attack
def large_arguments(address: Address) -> None:
    """Bind and consume with tables as large as a frame."""
    peer = Peer(address)
    peer.call("queue.declare", queue="arguments", exclusive=True)
    table = {f"k{number}": "v" for number in range(12_000)}
    for number in range(200):
        arguments = table | {"number": number}
        peer.put(
            "queue.bind",
            queue="arguments",
            exchange="amq.headers",
            arguments=arguments,
            nowait=True,
        )
        peer.put(
            "basic.consume",
            queue="arguments",
            consumer_tag=f"c{number}",
            arguments=arguments,
            nowait=True,
        )
    peer.settle()
    peer.drop()


@attack
def large_headers(address: Address) -> None:
    """Publish messages whose headers are as large and as deep as a frame allows."""
    peer = Peer(address)
    deep: dict[str, object] = {"end": 1}
    for _ in range(100):
        deep = {"d": deep}
    headers = {f"k{number}": number for number in range(9_000)} | {"deep": deep}
    one = publish("", b"", "amq.headers", headers=headers)
    for _ in range(500):
        peer.raw(one)
    peer.settle()
    peer.drop()


@attack
def many_copies(address: Address) -> None:
    """Send CC headers of thousands of keys."""
    peer = Peer(address)
    one = publish("", b"x", "", headers={"CC": [f"q{number}" for number in range(8_000)]})
    for _ in range(500):
        peer.raw(one)
    peer.settle()
    peer.drop()


@attack
def numbered_producers(address: Address) -> None:
    """Publish numbered messages to a hundred and fifty queues, each by a producer that is never used again."""
    peer = Peer(address)
    for number in range(150):
        arguments = {"x-max-length": 1}
        name = f"numbered{number}"
        peer.put("queue.declare", queue=name, durable=True, arguments=arguments, nowait=True)
        peer.put("queue.bind", queue=name, exchange="amq.fanout", nowait=True)
    peer.settle()
    life = os.urandom(8).hex()
    for number in range(6_800):
        headers = {"x-producer-id": f"{life} {number}", "x-producer-seq": 1}
        peer.publish("", b"", "amq.fanout", headers=headers, delivery_mode=2)
    peer.settle()
    peer.drop()


# -- queues ------------------------------------------------------------------------------------


@attack
def exclusive_queues(address: Address) -> None:
    """Declare fifteen thousand exclusive queues, bind them, and leave."""
    peer = Peer(address)
    for number in range(15_000):
        peer.put("queue.declare", queue=f"mine{number}", exclusive=True, nowait=True)
        peer.put("queue.bind", queue=f"mine{number}", exchange="amq.topic", nowait=True)
    peer.settle()
    peer.drop()


@attack
def many_bindings(address: Address) -> None:
    """Bind one queue a hundred thousand times, then delete it."""
    peer = Peer(address)
    peer.call("queue.declare", queue="bound")
    for number in range(100_000):
        peer.put(
            "queue.bind", queue="bound", exchange="amq.direct", routing_key=f"{number}", nowait=True
        )
    peer.settle()
    peer.put("queue.delete", queue="bound", nowait=True)
    peer.settle()
    peer.drop()


@attack
def many_consumers(address: Address) -> None:
    """Have ten thousand consumers on one queue, and give it messages, priorities and an end."""
    peer = Peer(address)
    peer.call("queue.declare", queue="consumed", arguments={"x-max-priority": 255})
    for number in range(10_000):
        peer.put(
            "basic.consume",
            queue="consumed",
            consumer_tag=f"{_BIG_NAME}{number}",
            arguments={"x-priority": number},
            nowait=True,
        )
    peer.settle()
    for number in range(20_000):
        peer.publish("consumed", b"", priority=number % 256)
    peer.settle()
    peer.put("queue.delete", queue="consumed", nowait=True)
    peer.settle()
    peer.drop()


@attack
def unacked(address: Address) -> None:
    """Take three hundred thousand messages, put them back, and leave."""
    peer = Peer(address)
    peer.call("queue.declare", queue="unacked", auto_delete=True)
    for _ in range(300_000):
        peer.publish("unacked")
    peer.settle()
    peer.put("basic.consume", queue="unacked", consumer_tag="c", nowait=True)
    peer.settle()
    for _ in range(3):
        peer.put("basic.nack", delivery_tag=0, multiple=True, requeue=True)
        peer.settle()
    peer.put("basic.recover", requeue=True)
    peer.settle()
    peer.drop()


@attack
def long_queue(address: Address) -> None:
    """Fill a queue with half a million messages, let them expire, purge and delete it."""
    peer = Peer(address)
    peer.call("queue.declare", queue="long")
    one = publish("long", b"x" * 100, expiration="100") + publish("long", b"y" * 100)
    for _ in range(250_000):
        peer.raw(one)
    peer.settle()
    peer.put("queue.purge", queue="long", nowait=True)
    for _ in range(250_000):
        peer.raw(one)
    peer.settle()
    peer.put("queue.delete", queue="long", nowait=True)
    peer.settle()
    peer.drop()


@attack
def durable_flood(address: Address) -> None:
    """Publish persistent messages of mixed sizes to durable queues, with confirms nobody reads."""
    peer = Peer(address)
    for number in range(50):
        peer.put("queue.declare", queue=f"durable{number}", durable=True, nowait=True)
    peer.call("confirm.select")
    for number in range(20_000):
        size = 100_000 if number % 100 == 0 else 200
        peer.publish(f"durable{number % 50}", bytes(size), delivery_mode=2)
    peer.settle()
    for number in range(50):
        peer.put("queue.delete", queue=f"durable{number}", nowait=True)
    peer.settle()
    peer.drop()


@attack
def declares(address: Address) -> None:
    """Declare and delete durable queues as fast as it goes."""
    peer = Peer(address)
    for number in range(3_000):
        peer.put("queue.declare", queue=f"d{number}", durable=True, nowait=True)
    for number in range(3_000):
        peer.put("queue.delete", queue=f"d{number}", nowait=True)
    peer.settle()
    peer.drop()


@attack
def gets(address: Address) -> None:
    """Get from an empty queue in a flood."""
    peer = Peer(address)
    peer.call("queue.declare", queue="empty", exclusive=True)
    for _ in range(50_000):
        peer.put("basic.get", queue="empty")
    peer.settle()
    peer.drop()


def main(name: str, host: str, port: str, seconds: str, data: str) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    os.nice(5)  # two processors are for broker and probe
    until_s = time.monotonic() + float(seconds)
    runs = 0
    while time.monotonic() < until_s:
        try:
            ATTACKS[name]((host, int(port)))
        except (OSError, AssertionError) as error:
            print(f"{name}: {error!r:.300}", flush=True)  # noqa: T201  - its log
            error.__traceback__ = None
            gc.collect()  # its peers are garbage now, whose sockets would hold queues that the next run declares
            time.sleep(0.5)  # a broker that refuses everything is not asked all the time
        runs += 1
    print(f"{name} runs={runs}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
