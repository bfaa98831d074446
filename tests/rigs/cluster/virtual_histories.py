"""Clients of a cluster in virtual time that declare, bind and delete the same few names at once.

The nodes are *busy*: of the actors that have something to do only a few have a turn before the next mail, or news of
etcd, comes in. So what a node does in one turn, and what in two, makes a difference, as it does on a machine with much
to do. ``topology_histories`` has the operations, and judges the histories.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from leveret.amqp import methods as m
from leveret.broker.vhost.queue_declare import CLIENT_LOCAL
from rigs.broker_rig import mandatory
from rigs.cluster.etcd_cluster import EtcdCluster
from rigs.cluster.topology_histories import (
    BOUND,
    CHANGES,
    IDENTITIES,
    KEY,
    LOOKS,
    NOT_BOUND,
    found_by_refusal,
)
from rigs.metadata.linearizability import Operation

STEP_S: Final = 0.0002  # of virtual time; a message to another node takes longer
PAUSE_S: Final = 0.002  # of a client between two operations, at most
STEPS_MAX: Final = 50_000  # 10 s: every operation is answered
EXCHANGES: Final = ("declare exchange", "declare exchange", "delete exchange", "bind", LOOKS[1])
PUBLISHES: Final = (*CHANGES, *LOOKS, "publish", "bind")
MIXTURES: Final = ((*CHANGES, *LOOKS), EXCHANGES, PUBLISHES)


class BusyRuntime:
    """Lets few actors of a runtime have a turn each time.

    Args:
        runtime: that it drives.
        random: how many turns, and whether any.
    """

    def __init__(self, runtime: Any, random: Random) -> None:
        self._runtime = runtime
        self._random = random
        self._share = random.choice((0.05, 0.2, 0.7))

    @property
    def is_idle(self) -> bool:
        return self._runtime.is_idle

    def run_until_idle(self) -> None:
        if self._random.random() < self._share:
            for _ in range(self._random.randint(1, 3)):
                self._runtime.drain()


class HistoryClient:
    """A client of one node, with one operation at a time.

    Args:
        cluster: of the node.
        node: its name.
        random: chooses what it does.
        kinds: of operations.
        is_durable: what it declares.
        left: how many operations it has to do.
        histories: by name, where they are noted.
    """

    def __init__(
        self,
        cluster: EtcdCluster,
        node: str,
        random: Random,
        kinds: Sequence[str],
        is_durable: bool,
        left: int,
        histories: dict[str, list[Operation]],
    ) -> None:
        self._clock = cluster.clock
        self._client = cluster[node].session()
        self._random = random
        self._kinds = kinds
        self._is_durable = is_durable
        self._left = left
        self._histories = histories
        self._operation: Operation | None = None
        self._is_opening = True
        self._next_s = 0.0
        self._found = BOUND
        self._send(m.ConfirmSelect())

    @property
    def is_done(self) -> bool:
        return self._operation is None and not self._left

    def step(self) -> None:
        """Take what was answered, and do the next operation, if it is time."""
        if self._client.wire.out:
            for answer in self._client.take():
                self._take(answer)
        now_s = self._clock.monotonic_s()
        if (
            self._operation is None
            and self._left
            and not self._is_opening
            and now_s >= self._next_s
        ):
            self._left -= 1
            self._begin()

    def _begin(self) -> None:
        random = self._random
        name = random.choice(list(self._histories))
        operation = Operation(
            random.choice(self._kinds), random.choice(IDENTITIES), self._clock.monotonic_s()
        )
        self._operation, self._found = operation, BOUND
        self._histories[name].append(operation)
        if operation.kind == "publish":
            self._client.protocol.data_received(mandatory(1, name, KEY, b"x"))
        else:
            assert operation.identity is not None
            self._send(_method(operation.kind, name, operation.identity, self._is_durable))

    def _send(self, *methods: m.Method) -> None:
        frames = [m.method_frame(1, m.encode(each)) for each in methods]
        self._client.protocol.data_received(b"".join(frames))

    def _take(self, answer: Any) -> None:
        match answer:
            case m.BasicReturn():
                self._found = NOT_BOUND
            case m.BasicAck():
                self._answered(self._found)
            case m.BasicNack():
                self._operation = None  # a queue was deleted: it is open whether it was found
            case m.ChannelClose():
                self._is_opening = True
                self._send(m.ChannelCloseOk(), m.ChannelOpen(), m.ConfirmSelect())
                found = found_by_refusal(answer.reply_text)
                assert found is not None, answer
                self._answered(found)
            case m.ConfirmSelectOk():
                self._is_opening = False
            case m.ConnectionClose():
                raise AssertionError(answer)
            case m.QueueDeclareOk() | m.ExchangeDeclareOk() if self._is_declaring:
                assert self._operation is not None
                self._answered(self._operation.identity)
            case m.Method() if not isinstance(answer, m.ChannelOpenOk):
                self._answered(None)

    @property
    def _is_declaring(self) -> bool:
        return self._operation is not None and self._operation.kind.startswith("declare")

    def _answered(self, answer: int | str | None) -> None:
        assert self._operation is not None
        now_s = self._clock.monotonic_s()
        self._operation.answer, self._operation.answered_at = answer, now_s
        self._operation = None
        self._next_s = now_s + self._random.random() * PAUSE_S


def _method(kind: str, name: str, number: int, is_durable: bool) -> m.Method:
    limit = {"x-max-length": ("I", number)}
    alternate = {"alternate-exchange": ("S", b"ae%d" % number)}
    methods: dict[str, Callable[[], m.Method]] = {
        "declare queue": lambda: m.QueueDeclare(name, durable=is_durable, arguments=limit),
        "declare exchange": lambda: m.ExchangeDeclare(
            name, "direct", durable=is_durable, arguments=alternate
        ),
        "delete queue": lambda: m.QueueDelete(name),
        "delete exchange": lambda: m.ExchangeDelete(name),
        "bind": lambda: m.QueueBind(name, name, KEY),
        "unbind": lambda: m.QueueUnbind(name, name, KEY),
        "look for queue": lambda: m.QueueDeclare(name, passive=True),
        "look for exchange": lambda: m.ExchangeDeclare(name, "direct", passive=True),
    }
    return methods[kind]()


def busy_histories(
    seed: int,
    is_durable: bool,
    clients: int = 6,
    operations: int = 25,
    locator: str = CLIENT_LOCAL,
) -> dict[str, list[Operation]]:
    """Let clients, two of each of three busy nodes, change two pairs at once; return the history of each.

    ``locator`` chooses the nodes of their queues.
    """
    random = Random(seed)
    cluster = EtcdCluster("abc", seed)
    for member in cluster.members.values():
        assert member.node.cluster_nodes is not None
        member.node.cluster_nodes.default_locator = locator
    histories: dict[str, list[Operation]] = defaultdict(list, x=[], y=[])
    kinds = MIXTURES[seed % len(MIXTURES)]
    started = [
        HistoryClient(
            cluster, "abc"[number % 3], Random(seed * 1000 + number), kinds, is_durable,
            operations, histories,
        )
        for number in range(clients)
    ]  # fmt: skip
    cluster.clock.drive(lambda runtime: BusyRuntime(runtime, random))
    for _ in range(STEPS_MAX):
        for client in random.sample(started, clients):
            client.step()
        if all(client.is_done for client in started):
            return histories
        cluster.clock.jump(STEP_S)
    raise AssertionError(f"not all operations are answered: {histories}")
