"""The connections of a node: which are open, how many there may be, and what their readers share."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from msgspec import Struct

from leveret.amqp.errors import ConnectionForced, InternalError, NotAllowed
from leveret.broker.channel.reply_consumers import ReplyConsumers
from leveret.broker.channel.uncommitted import OpenTransactions
from leveret.broker.connection.open_counts import (
    RemoteCounts,
    channels_of,
    connections_of,
    connections_to,
)
from leveret.broker.connection.pending_writes import PendingWrites
from leveret.broker.connection.reading.content_release import ContentRelease
from leveret.broker.connection.reading.read_control import ReadingTurns
from leveret.broker.script import Steps, Until
from leveret.broker.vhost.auth.auth_backends import Question
from leveret.broker.vhost.states import State

if TYPE_CHECKING:
    from collections.abc import Callable, Sized

    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.runtime import Runtime
    from leveret.broker.channel.session import Intercepting, Session
    from leveret.broker.connection.alarms import Alarms
    from leveret.broker.vhost.auth.access import Access, User
    from leveret.broker.vhost.vhost import VHost
    from leveret.core.settings import BrokerSettings

CONNECTIONS: Final = "connections"
_POLL_S: Final = 0.02  # while a vhost is being started


class CloseConnection(Struct, eq=False):
    """Ask a reader to close its connection with 320 and this text (operators, vhosts that end)."""

    reason: str


class GiveUpContents:
    """Ask a reader to drop contents that no channel has got, and to close its connection with 506."""


class OpenConnection(Protocol):
    """A reader, as the limits see it."""

    session: Session | None

    @property
    def ref(self) -> Ref: ...

    @property
    def channels(self) -> Sized: ...

    @property
    def contents_bytes(self) -> int: ...


_GIVE_UP: Final = GiveUpContents()
STEPS_PER_DRAIN: Final = 8  # of handshakes, answered at once; each costs about 0.1 ms

ReaderT = TypeVar("ReaderT", bound=OpenConnection)


class Connections(Generic[ReaderT]):
    """The open connections, by their readers, and the limits on them.

    Attributes:
        cluster_name: returns the name of the cluster that clients are told.
        reply_consumers: of all channels.
        open_transactions: of all channels.
        content_release: of contents that nobody will take.
        turns: the order in which paused connections are read again.
        pending_writes: of all connections.
        interceptors: of messages, for the channels of connections that are opened; None: there are none.
        is_stopping: the node is stopping: new sockets are refused, and ends of channels are no errors.
        refusal: why no client is served for now; "": they are.
        remote_counts: the counts of the other nodes of a cluster.
    """

    def __init__(
        self,
        runtime: Runtime,
        settings: BrokerSettings,
        access: Access,
        vhosts: dict[str, VHost],
        alarms: Alarms,
        memory_limit_bytes: Callable[[], int],
        cluster_name: Callable[[], str],
    ) -> None:
        self._runtime = runtime
        self.settings = settings
        self.access = access
        self._vhosts = vhosts
        self.alarms = alarms
        self.cluster_name = cluster_name
        self.reply_consumers = ReplyConsumers(runtime)
        self.open_transactions = OpenTransactions(memory_limit_bytes)
        self.turns = ReadingTurns(runtime, settings.batching)
        self.pending_writes = PendingWrites(runtime)
        self.content_release = ContentRelease(runtime.clock)
        self.readers: dict[Ref, ReaderT] = {}
        self.interceptors: Intercepting | None = None
        self.is_stopping = False
        self.refusal = ""
        self.remote_counts = RemoteCounts()
        self._steps_drain = 0  # the drain to which the next figure belongs
        self._steps_left = 0  # steps of handshakes that it still answers at once

    def __len__(self) -> int:
        return len(self.readers)

    @property
    def channel_count(self) -> int:
        return sum(len(reader.channels) for reader in self.readers.values())

    def admit_step(self) -> bool:
        """Count a step of a handshake; return whether it is one of the first ``STEPS_PER_DRAIN`` of this drain."""
        drain = self._runtime.turns.scheduler.drains
        if drain != self._steps_drain:
            self._steps_drain, self._steps_left = drain, STEPS_PER_DRAIN
        self._steps_left -= 1
        return self._steps_left >= 0

    def opened(self, reader: ReaderT) -> None:
        """Count a connection in, until its reader ends, whatever ends it."""
        ref = reader.ref
        self.readers[ref] = reader
        self._announce_counts(reader)
        self._runtime.watch(ref, lambda _: self._reader_ended(ref))

    def _reader_ended(self, ref: Ref) -> None:
        if self.readers.pop(ref, None) is not None:  # it was killed, and has no session any more
            self.remote_counts.changed()
        for vhost in self._vhosts.values():
            vhost.owner_ended(ref)

    def closed(self, reader: Ref) -> None:
        """Count a connection out; harmless when it never was open."""
        closed = self.readers.pop(reader, None)
        if closed is not None:
            self._announce_counts(closed)

    def _announce_counts(self, reader: ReaderT) -> None:
        if self.is_limited(reader):
            self.remote_counts.changed()

    def close_where(self, is_doomed: Callable[[ReaderT], bool], reason: str) -> int:
        """Have connections closed with 320; return how many."""
        doomed = [ref for ref, reader in self.readers.items() if is_doomed(reader)]
        for ref in doomed:
            self._runtime.send(ref, CloseConnection(reason))
        return len(doomed)

    def give_up_contents(self, kept_bytes: int) -> int:
        """Have connections closed whose contents wait for the rest, or for the end of an alarm.

        Those with the largest, until the others take no more than ``kept_bytes``. Returns how many.
        """
        held = [(each.contents_bytes, ref) for ref, each in self.readers.items()]
        total_bytes = sum(size_bytes for size_bytes, _ in held)
        if total_bytes <= kept_bytes:
            return 0
        held.sort(key=itemgetter(0))
        given_up = 0
        while total_bytes > kept_bytes:
            size_bytes, ref = held.pop()
            total_bytes -= size_bytes
            given_up += 1
            self._runtime.send(ref, _GIVE_UP)
        return given_up

    # -- limits --------------------------------------------------------------------------------

    def open_vhost(self, user: User, name: str) -> VHost:
        """Return the vhost a connection asks for.

        Raises:
            NotAllowed: it is missing, the user has no permission there, or a limit is reached.
            InternalError: it is down.
            ConnectionForced: the node serves nobody for now.
            Question: another node has made the vhost, and it is still being started here.
        """
        if self.refusal:
            raise ConnectionForced(self.refusal)
        vhost = self._vhosts.get(name)
        if vhost is None:
            raise NotAllowed(f"vhost {name} not found")
        self._check_connection_limits(user, vhost)
        self.access.check_vhost(user, name)
        if vhost.state.now is not State.RUNNING:
            if vhost.cluster_nodes is not None and vhost.state.is_new:
                question = Question()
                self._runtime.clock.call_later(_POLL_S, question.answered)
                raise question
            raise InternalError(
                f"access to vhost '{name}' refused for user '{user.name}': vhost '{name}' is down"
            )
        return vhost

    def _check_connection_limits(self, user: User, vhost: VHost) -> None:
        limit = vhost.limits.get("max-connections", -1)
        if self._is_reached(
            limit, lambda each: vhost_of(each) is vhost, connections_to(vhost.name)
        ):
            raise NotAllowed(
                f"access to vhost '{vhost.name}' refused for user '{user.name}':"
                f" connection limit ({limit}) is reached"
            )
        limit = user.limits.get("max-connections", -1)
        if self._is_reached(
            limit, lambda each: user_of(each) == user.name, connections_of(user.name)
        ):
            raise NotAllowed(
                f"connection refused for user '{user.name}':"
                f" user connection limit ({limit}) is reached"
            )

    def _is_reached(self, limit: int, counts: Callable[[ReaderT], bool], key: str) -> bool:
        """Whether there are as many connections as a limit allows, -1: any number.

        Args:
            limit: it costs a count of all connections of this node, if it is not -1.
            counts: whether a connection counts.
            key: of the counts of other nodes.
        """
        if limit < 0:
            return False
        return limit <= sum(map(counts, self.readers.values())) + self.remote_counts.of(key)

    def channel_opened(self, user: User, reader: Ref, then: Callable[[], object]) -> None:
        """Call ``then`` for a new channel: in a turn of its reader, once the other nodes have counted the channel."""
        when_acknowledged = self.remote_counts.when_acknowledged
        if user.limits and when_acknowledged is not None:
            when_acknowledged(lambda _: self._runtime.run_as(reader, then))
        else:
            then()

    def channel_closed(self, user: User) -> None:
        """A user has closed a channel."""
        if user.limits:
            self.remote_counts.changed()

    def check_channel_limit(self, user: User) -> None:
        """Raise NotAllowed when a user has as many channels as it may have."""
        limit = user.limits.get("max-channels", -1)
        if limit < 0:
            return
        readers = self.readers.values()
        count = sum(len(each.channels) for each in readers if user_of(each) == user.name)
        if count + self.remote_counts.of(channels_of(user.name)) >= limit:
            raise NotAllowed(
                f"number of channels opened for user '{user.name}' has reached the maximum"
                f" allowed user limit of ({limit})",
                0,
            )

    def is_limited(self, reader: ReaderT) -> bool:
        """Whether a limit of its user or vhost applies to a connection."""
        user, vhost = self.access.users.get(user_of(reader) or ""), vhost_of(reader)
        return bool((user is not None and user.limits) or (vhost is not None and vhost.limits))

    def counted(self, reader: ReaderT) -> Steps:
        """Wait until the other nodes have this node's counts, if a limit applies to the connection."""
        when_acknowledged = self.remote_counts.when_acknowledged
        if when_acknowledged is not None and self.is_limited(reader):
            yield Until(when_acknowledged)

    def limited_counts(self) -> dict[str, int]:
        """Return the counts of this node that have a limit, for the other nodes."""
        users = {name: each.limits for name, each in self.access.users.items() if each.limits}
        vhosts = {name for name, each in self._vhosts.items() if "max-connections" in each.limits}
        counts: Counter[str] = Counter()
        for reader in self.readers.values() if users or vhosts else ():
            user, vhost = user_of(reader), vhost_of(reader)
            if user in users:
                counts[connections_of(user)] += 1
                counts[channels_of(user)] += len(reader.channels)
            if vhost is not None and vhost.name in vhosts:
                counts[connections_to(vhost.name)] += 1
        return dict(counts)


def vhost_of(reader: OpenConnection) -> VHost | None:
    """Return the vhost a connection is open on."""
    return reader.session.vhost if reader.session is not None else None


def user_of(reader: OpenConnection) -> str | None:
    """Return the name of the user a connection has logged in as."""
    return reader.session.user.name if reader.session is not None else None


def registered(runtime: Runtime, supervisor: str) -> Ref:
    """Return a supervisor by its name; InternalError while it is being restarted."""
    ref = runtime.whereis(supervisor)
    if ref is None:
        raise InternalError()
    return ref
