"""The reader: one connection, from its socket to its channels.

``ConnectionProtocol`` is asyncio's side; its events run as turns of the ``Reader``, so an error ends that
actor and nothing else. ``Input`` takes the bytes: the kernel cuts them into runs; runs of channel 0 are handled
here, the others go to their channel as one mail per read. ``states.py`` has the states and their transitions.

A connection is one failure unit: reader, ``connection`` supervisor and channels are linked. Before
connection.open there is the reader only.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from leveret.actors.actor import IGNORE
from leveret.actors.gen_server import GenServer
from leveret.actors.runtime.fair_queue import KNOWN_TURN_S
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.signals import NORMAL, SHUTDOWN, CallFailed, Down, Exit
from leveret.actors.runtime.timers import Timer
from leveret.amqp import spec
from leveret.amqp.errors import (
    ChannelError,
    ConnectionForced,
    HardError,
    InternalError,
    ProtocolError,
    ResourceError,
)
from leveret.amqp.fields import Method
from leveret.amqp.heartbeat import Heartbeat
from leveret.amqp.kernel import ERROR, HEARTBEAT, METHOD, RUN_CHANNEL, RUN_KIND, Run
from leveret.amqp.methods import (
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpenOk,
    decode,
    encode,
    method_frame,
)
from leveret.amqp.spec import HEARTBEAT_FRAME
from leveret.broker.channel.routes import Routes
from leveret.broker.channel.session import Block, Session, method_of
from leveret.broker.connection import address
from leveret.broker.connection.alarms import AlarmsOver
from leveret.broker.connection.channel_table import ChannelTable, is_of_connection
from leveret.broker.connection.connection_log import TO_MAKE_ROOM, ConnectionLog, header_problem
from leveret.broker.connection.connections import (
    CONNECTIONS,
    CloseConnection,
    Connections,
    GiveUpContents,
    registered,
)
from leveret.broker.connection.handshake import (
    HEADER_BYTES,
    REFUSAL,
    Handshake,
    Opened,
    RefusedError,
    is_protocol_header,
)
from leveret.broker.connection.input import Input
from leveret.broker.connection.reading.read_control import ReadControl
from leveret.broker.connection.reading.throttle import Throttle
from leveret.broker.connection.secret_update import update_secret
from leveret.broker.connection.states import ConnectionState, Event, State
from leveret.broker.connection.writer import Writer
from leveret.broker.mail import AllHandled, ChannelStays, ConnectionFailed, PeerEnded, RunsLeft
from leveret.broker.script import Script, Steps, Until
from leveret.broker.vhost.auth.auth_backends import Question
from leveret.broker.vhost.read_your_writes import connection_ended
from leveret.core.limits import (
    CLOSING_WAIT_S,
    PART_WAIT_S,
    REST_S,
    SILENT_CLOSE_S,
)
from leveret.supervisors.requests import StartChild

if TYPE_CHECKING:
    from leveret.broker.connection.sockets import ConnectionProtocol

_RUNNING: Final = State.RUNNING
_WRITE_HIGH_BYTES: Final = 512 * 1024
_WRITE_LOW_BYTES: Final = 128 * 1024


class _Unread:
    """To itself: bytes of the handshake wait."""


_UNREAD: Final = _Unread()


class Reader(GenServer):
    """The actor of one connection: reads its socket, and speaks for channel 0."""

    def init(
        self,
        connections: Connections[Reader],
        transport: asyncio.Transport,
        protocol: ConnectionProtocol,
    ) -> object:
        if transport.is_closing():
            return IGNORE
        self.trap_exits = True
        self.charge_to(self.ref.num)
        self.connections = connections
        self.protocol = protocol
        transport.set_write_buffer_limits(_WRITE_HIGH_BYTES, _WRITE_LOW_BYTES)
        self.peer, self.local = protocol.peer, protocol.local
        self.connected_at_s = self.runtime.clock.wall_s()
        self.log = ConnectionLog(self.name, self.peer, self.runtime.clock.monotonic_s())
        self.state = ConnectionState()
        self.early = self.unread = b""
        self._unanswered: Run | None = None  # of the handshake, until a back end has answered
        self.channels = ChannelTable(self)
        self.writer = Writer(
            self.runtime,
            connections.pending_writes.add,
            transport,
            partial(self.runtime.run_as, self.ref, self.channels.pause_writing),
            partial(self.runtime.run_as, self.ref, self._take_more),
        )
        throttle = Throttle(connections.alarms, self.ref, self._tell_throttled)
        self.read_control = ReadControl(
            transport, self.writer, connections.turns, connections.alarms, throttle, self.ref
        )
        self.handshake: Handshake | None = None
        self.opened: Opened | None = None
        self.session: Session | None = None
        self.channels_sup: Ref | None = None
        self.input = Input(self)
        self.peer_has_ended = False
        self.unanswered_closes = 0
        self.forced: ProtocolError | None = None
        self.timer: Timer | None = self.start_timer(connections.settings.handshake_s, "handshake")
        protocol.attach(self, transport)
        return None

    @property
    def name(self) -> str:
        """``peer -> local``, as RabbitMQ names connections."""
        return address.name(self.peer, self.local)

    @property
    def contents_bytes(self) -> int:
        """Contents that have come in part, or wait for the end of an alarm."""
        return self.input.scanner.buffered + self.read_control.throttle.held_bytes

    # -- the socket ----------------------------------------------------------------------------

    def received_while_not_running(self, data: bytes) -> None:
        """Take bytes that are not for channels."""
        match self.state.now:
            case State.HEADER | State.HANDSHAKE:
                self._read_step(data)
            case State.OPENING:
                self.early += data
                if Block.LONG_READ not in self.read_control.blocks:
                    self.read_control.block(Block.LONG_READ)
            case State.CLOSING:
                self._read_close_ok(data)

    def _read_step(self, data: bytes) -> None:
        """Handle a step of the handshake, and answer it at once if it is among the first of this drain.

        A client that has its answer before the work of the drain is done sends its next step meanwhile. Thousands of
        clients may take a step at once, which the event loop would handle in one turn: the others are left to the bulk
        queue, and short work of open connections goes before them.
        """
        if not self.unread and self.connections.admit_step():
            self.unread = data
            self._read_unread()
            self.connections.pending_writes.send_now(self.writer)
            return
        if not self.unread:
            self.runtime.turns.expect(self.ref, KNOWN_TURN_S)
            self.runtime.again(self.ref, _UNREAD)
        elif Block.LONG_READ not in self.read_control.blocks:
            self.read_control.block(Block.LONG_READ)
        self.unread += data

    def _read_unread(self) -> None:
        data, self.unread = self.unread, b""
        if self.state.now is State.HEADER:
            self._read_header(data)
        elif self.state.now is State.HANDSHAKE:
            self._read_handshake(data)
        self.read_control.unblock(Block.LONG_READ)

    def socket_lost(self, error: Exception | None) -> None:
        if self.unread:
            self.writer.drop()
            self._read_unread()
        reason = f"socket lost: {error}" if error else "the client closed the socket unexpectedly"
        self.log.ends(reason, logging.WARNING)
        self.writer.abort()
        self.read_control.close()
        self.stop(NORMAL)

    def makes_room(self) -> None:
        """The socket is closed for one of another client, before login or after the connection's end."""
        if self.opened is None:
            self._log_refusal(TO_MAKE_ROOM)

    def writing_paused(self) -> None:
        self.writer.pause()
        self.channels.pause_writing()

    def writing_resumed(self) -> None:
        self.writer.resume()
        if not self.writer.has_large_body:
            self._take_more()

    def _take_more(self) -> None:
        if self.peer_has_ended:
            return
        self.channels.resume_writing()
        self.read_control.unblock(Block.UNSENT)

    def input_ended(self) -> None:
        """The client has closed its end; a transport that has more to write would wait for the client to read."""
        if self.state.now is _RUNNING and (self.peer_has_ended or self.writer.unsent_bytes):
            self.writer.abort()

    def _peer_ended(self) -> None:
        """The client has closed its end, and the socket is not read.

        RabbitMQ ends a connection when it reads that. While an alarm is raised no publish is read, maybe for
        hours, so the connection ends with all that was not handled. Otherwise what the client has sent is read to
        the end, within ``REST_S``; nothing is written, since the answer could be a reset.
        """
        blocks = self.read_control.blocks
        if self.state.now is State.CLOSING:
            self._close_socket()
        if self.state.now is not _RUNNING or not blocks:
            return
        if self.connections.alarms.raised or Block.UNSENT in blocks:
            self._give_up("the client has ended while it was blocked")
        elif not self.peer_has_ended:
            self.peer_has_ended = True
            self.writer.drop()
            self.channels.peer_ended()
            self._arm("rest", REST_S)

    def _give_up(self, reason: str, level: int = logging.WARNING) -> None:
        """End without a word to the client."""
        self.log.ends(reason, level)
        self.writer.abort()
        self._close_socket()

    # -- handshake -----------------------------------------------------------------------------

    def _read_header(self, data: bytes) -> None:
        self.log.accepted()
        self.early += data
        if len(self.early) < HEADER_BYTES:
            return
        header, rest = self.early[:HEADER_BYTES], self.early[HEADER_BYTES:]
        self.early = b""
        if not is_protocol_header(header):
            self._log_refusal(header_problem(header))
            self.writer.write(REFUSAL)
            self._part()
            return
        is_local = address.is_loopback(self.peer)
        peer, tls = address.split(self.peer)[0], self.protocol.tls
        self.handshake = Handshake(self.connections, is_local, peer, tls)
        self.state.enter(Event.HEADER_ACCEPTED)
        self.send_method(self.handshake.start())
        if rest:
            self._read_handshake(rest)

    def _read_handshake(self, data: bytes) -> None:
        """Scan run by run: tune-ok changes the frame size for the bytes behind it."""
        if self._unanswered is not None:
            self.early += data
            return
        runs = self.input.scanner.scan(data)
        while runs:
            self._handshake_run(runs[0])
            if self.state.now is not State.HANDSHAKE or self._unanswered is not None:
                return
            runs = self.input.scanner.scan(b"")
        if self.input.scanner.pending:  # else 128 MiB could come before the login
            self._refuse(RefusedError("a content during the handshake"), spec.BASIC_PUBLISH)

    def _handshake_run(self, run: Run) -> None:
        assert self.handshake is not None
        kind = run[RUN_KIND]
        if kind == HEARTBEAT:
            return
        try:
            if kind == ERROR:
                _, problem = run
                raise RefusedError(problem.log_text)
            if kind != METHOD or run[RUN_CHANNEL] != 0:
                raise RefusedError(f"a frame of channel {run[RUN_CHANNEL]} during the handshake")
            _, _, ids, arguments = run
            answer = self.handshake.method(ids, arguments)
        except Question as question:
            self._unanswered = run
            self.read_control.block(Block.QUESTION)
            question.when_answered(partial(self.runtime.run_as, self.ref, self._answered))
        except RefusedError as refusal:
            self._refuse(refusal, method_of(run) if kind == METHOD else 0)
        except ProtocolError as error:
            method = error.method or 0
            self._log_refusal(error.log_text, ids, error.code)
            self._say_close(error, method)
        else:
            self._handshake_goes_on(answer)

    def _answered(self) -> None:
        """A back end has answered: handle the method again that has asked, and what came since."""
        run, self._unanswered = self._unanswered, None
        if run is None or self.state.now is not State.HANDSHAKE:
            return
        self.read_control.unblock(Block.QUESTION)
        self._handshake_run(run)
        if self.state.now is State.HANDSHAKE and self._unanswered is None:
            data, self.early = self.early, b""
            self._read_handshake(data)

    def _handshake_goes_on(self, answer: Method | Opened | None) -> None:
        assert self.handshake is not None
        if isinstance(answer, Opened):
            self._open(answer)
        elif answer is not None:
            self.send_method(answer)
        else:  # tune-ok
            assert self.handshake.tuned is not None
            self._agree_on(self.handshake.tuned.frame_max, self.handshake.tuned.heartbeat)

    def _refuse(self, refusal: RefusedError, method: int) -> None:
        """Say nothing and close a little later, which slows guessing down; as RabbitMQ."""
        assert self.handshake is not None
        self._log_refusal(str(refusal), method)
        self.state.enter(Event.LOGIN_REFUSED)
        self._arm("close", SILENT_CLOSE_S)

    def _open(self, opened: Opened) -> None:
        self._disarm()
        self.opened = opened
        self.log.opened(opened)
        self.session = Session(
            opened.user,
            self.ref,
            self.name,
            self.log.source,
            opened.vhost,
            self.writer,
            self.read_control,
            Routes(opened.vhost, opened.user),
            self.connections.settings,
            opened.frame_max,
            opened.cancel_notify,
            self.log.client_name,
            self.connections.reply_consumers,
            self.connections.open_transactions,
            self.connections.interceptors,
        )
        self.handshake = None
        self.state.enter(Event.VHOST_OPENED)
        self.connections.opened(self)
        self.protocol.opened()
        self.call(
            registered(self.runtime, CONNECTIONS),
            StartChild((self.name, self.ref)),
            self._connection_started,
            None,
        )

    def _connection_started(self, answer: Any) -> None:
        """The supervisor of the channels is there: the connection is open."""
        if isinstance(answer, CallFailed) or answer[0] != "ok":
            self.log.failed(InternalError(f"channels cannot be started: {answer}"), 0)
            self._say_close(InternalError(), 0)
            return
        self.channels_sup = answer[1]
        Script(self, self.connections.counted(self), self._channels_ready).resume()

    def _channels_ready(self, _: object) -> None:
        self.state.enter(Event.CHANNELS_READY)
        if self.forced is None:
            self.send_method(ConnectionOpenOk())
        else:
            self.fail(self.forced)
        self.input.read_whole_runs()
        early, self.early = self.early, b""
        self.input.received(early)
        self.read_control.unblock(Block.LONG_READ)

    # -- running -------------------------------------------------------------------------------

    def own_run(self, run: Run) -> None:
        """Handle channel 0 and errors of the kernel."""
        if self.state.now is not _RUNNING or self.channels.is_closing:
            if is_of_connection(run, spec.CONNECTION_CLOSE):
                self._close_again()
            return
        kind = run[RUN_KIND]
        if kind == ERROR:
            self.input.renew_scanner()
            _, problem = run
            self.fail(problem)
            return
        method = method_of(run)
        arguments = run[-1]  # of a METHOD
        try:
            if method == spec.CONNECTION_CLOSE:
                decode(method, arguments)
                self.read_control.block(Block.ENDING)
                self.channels.close()
            elif method == spec.CONNECTION_UPDATE_SECRET:
                update_secret(self, decode(method, arguments))
            else:
                if method in spec.METHOD_NAMES and kind == METHOD:
                    decode(method, arguments)
                raise ChannelError("unexpected method in connection state running", method)
        except HardError as error:
            error.method = error.method or method
            self.fail(error)

    # -- mail ----------------------------------------------------------------------------------

    def handle_cast(self, message: object) -> None:
        if type(message) is ConnectionFailed:
            self.fail(message.error, message.channel)
        elif type(message) is RunsLeft:
            self.input.hand_over(message.runs)
            self.read_control.unblock(Block.LONG_READ)
        elif type(message) is AlarmsOver:
            self._alarms_over(message)
        elif type(message) is ChannelStays:
            self.channels.stays(message.number)
        elif type(message) is AllHandled:
            self.channels.handled_all(message.number)
        elif type(message) is _Unread:
            self._read_unread()
        elif type(message) is PeerEnded:
            self._peer_ended()
        elif type(message) is CloseConnection:
            self.fail(ConnectionForced(message.reason, 0))
        elif type(message) is GiveUpContents:
            self.connections.content_release.take(self.input.scanner)
            self.read_control.throttle.drop_held()
            self.fail(ResourceError("message dropped: memory is short", 0))
        else:
            super().handle_cast(message)

    def handle_info(self, message: object) -> None:
        if type(message) is Down:
            self.channels.down(message.ref, message.reason)
        elif type(message) is Exit:
            self._linked_exit(message)
        elif message == "heartbeat":
            self._heartbeat_due()
        elif message == "rest" and self.state.now is _RUNNING:
            self._give_up(f"the client has ended, but was not read to its end in {REST_S:g} s")
        elif message in {"handshake", "close"}:
            if message == "handshake":
                self._handshake_timed_out()
            if self.state.now is State.PARTING:
                self.writer.abort()
            self._close_socket()

    def _handshake_timed_out(self) -> None:
        timeout_s = self.connections.settings.handshake_s
        self._log_refusal(f"no connection.open within {timeout_s:g} s")

    def _log_refusal(self, reason: str, method: int = 0, code: int = 0) -> None:
        if self.handshake is not None:
            self.log.knows(self.handshake.user_name, self.handshake.client_properties)
        self.log.refused(reason, method, code)

    def _alarms_over(self, message: AlarmsOver) -> None:
        throttle, read_control = self.read_control.throttle, self.read_control
        if Block.LONG_READ in read_control.blocks:  # what was read before comes first
            self.runtime.again(self.ref, message)
        elif throttle.is_blocked and self.state.now is _RUNNING:
            self.input.hand_over_later(throttle.over())
            read_control.unblock(Block.ALARM)

    def _tell_throttled(self, method: Method) -> None:
        if self.opened is not None and self.opened.blocked_notify:
            self.send_method(method)

    def _linked_exit(self, exit_: Exit) -> None:
        """The supervisor of the channels ended: with the node, or because a channel crashed."""
        if exit_.sender is self.channels_sup and self.state.now is _RUNNING:
            self.channels_sup = None
            if not self.connections.is_stopping:
                self.fail(InternalError(method=0))

    # -- heartbeats ----------------------------------------------------------------------------

    def _agree_on(self, frame_max: int, interval_s: int) -> None:
        self.input.agree_on(frame_max, Heartbeat(interval_s) if interval_s else None)
        if interval_s:
            self.start_timer(interval_s / 2, "heartbeat")

    def _heartbeat_due(self) -> None:
        read_control, heartbeat = self.read_control, self.input.heartbeat
        assert heartbeat is not None
        is_blocked = read_control.is_blocked
        send, lost = heartbeat.half_interval(self.writer.wrote, is_blocked)
        if lost or (is_blocked and read_control.is_unreachable(2 * heartbeat.interval_s)):
            reason = f"missed heartbeats of the client, timeout {heartbeat.interval_s} s"
            self._give_up(reason, logging.ERROR)
            return
        if send:
            self.writer.write(HEARTBEAT_FRAME)
            self.writer.flush()
        self.writer.forget_written()  # a heartbeat does not put off the next one
        self.start_timer(heartbeat.interval_s / 2, "heartbeat")

    # -- the end -------------------------------------------------------------------------------

    def fail(self, error: ProtocolError, channel: int = 0) -> None:
        """Close the connection with an error: first its channels end, then connection.close goes."""
        if self.state.now is State.OPENING:
            self.forced = error  # the channels' supervisor is on its way and must end first
        if self.state.now is not _RUNNING:
            return
        method = error.method or 0
        self.log.failed(error, channel)
        self.state.enter(Event.END_BEGINS)
        Script(self, self._end_steps(), lambda _: self._say_close(error, method)).resume()

    def client_closes(self) -> None:
        """All that came before the client's connection.close has been handled."""
        self.log.ends("closed by the client")
        self.state.enter(Event.END_BEGINS)

        def ended(_: object) -> None:
            self.send_method(ConnectionCloseOk())
            self.connections.closed(self.ref)
            self._wait_for_end()

        Script(self, self._end_steps(), ended).resume()

    def _end_steps(self) -> Steps:
        """End the channels (their messages go back) and delete the connection's exclusive queues."""
        self._disarm()
        self.read_control.block(Block.ENDING)
        if self.channels_sup is not None:
            ended, self.channels_sup = self.channels_sup, None
            # By itself: CONNECTIONS would start no other connection until this one has ended.
            self.runtime.exit(ended, SHUTDOWN, self.ref)
            yield Until(partial(self.runtime.watch, ended))
        if self.session is not None:
            vhost, left = self.session.vhost, self.session.left_queues
            left += yield from vhost.delete_exclusive(self.ref)
            if not self.connections.refusal:
                yield from connection_ended(vhost, left)
            if self.connections.is_limited(self):
                self.connections.closed(self.ref)
                yield from self.connections.counted(self)

    def _say_close(self, error: ProtocolError, method: int) -> None:
        self._write_close(error, method)
        self._wait_for_end()

    def _wait_for_end(self) -> None:
        """Wait for the client's close-ok, or for it to close the socket; a timer ends the wait.

        The client closes the socket, so that it receives all frames written before.
        """
        self.state.enter(Event.CLOSE_SENT)
        self.protocol.ended()
        self.input.read_whole_runs()
        self.read_control.release()
        for _ in range(self.unanswered_closes):
            self.send_method(ConnectionCloseOk())
        wait_s = CLOSING_WAIT_S
        if self.opened is not None and self.opened.heartbeat_s:
            wait_s = min(wait_s, self.opened.heartbeat_s)
        self._arm("close", wait_s)

    def _write_close(self, error: ProtocolError, method: int) -> None:
        text = error.text.decode("utf-8", "surrogateescape")
        self.send_method(ConnectionClose(error.code, text, method >> 16, method & 0xFFFF))

    def _read_close_ok(self, data: bytes) -> None:
        """Take close-ok, and close once more, which RabbitMQ answers each time; ignore the rest."""
        for run in self.input.scanner.scan(data):
            if run[RUN_KIND] == ERROR:
                self.input.renew_scanner()
            elif is_of_connection(run, spec.CONNECTION_CLOSE):
                self._close_again()
            elif is_of_connection(run, spec.CONNECTION_CLOSE_OK):
                self._close_socket()
                return
        if self.connections.alarms.raised and self.input.scanner.pending:
            # Half a content that nobody will take: it is dropped, and the timer ends the connection.
            self.input.renew_scanner()
            self.read_control.block(Block.ENDING)

    def _close_again(self) -> None:
        """Answer a second close; behind our own close, if that is not written yet."""
        if self.state.now is State.CLOSING:
            self.send_method(ConnectionCloseOk())
        else:
            self.unanswered_closes += 1

    def _part(self) -> None:
        """Say no more, and give the peer some time to close the socket.

        Closing it over unread bytes would have the kernel reset the connection, and the peer might lose our last word.
        """
        self.state.enter(Event.HEADER_REFUSED)
        self.writer.finish()
        self._arm("close", PART_WAIT_S)

    def _close_socket(self) -> None:
        """Send the written frames, close the socket and end."""
        self.state.enter(Event.SOCKET_CLOSED)
        self.read_control.close()
        self.writer.close()
        self.stop(NORMAL)

    def terminate(self, reason: object) -> None:
        """Leave no socket behind, whatever ended the reader."""
        if reason == SHUTDOWN:
            self.log.ends("the broker stops")
        if reason == SHUTDOWN and self.state.now is _RUNNING:
            forced = "broker forced connection closure with reason 'shutdown'"
            self.writer.drop_output()
            self._write_close(ConnectionForced(forced), 0)
        self.writer.close()
        self.read_control.close()
        self.channels.connection_ended()
        self.connections.content_release.take(self.input.scanner)
        self.protocol.ended()
        self.connections.closed(self.ref)
        self.log.closed(self.runtime.clock.monotonic_s(), reason)

    def send_method(self, method: Method) -> None:
        self.writer.write(method_frame(0, encode(method)))

    def _arm(self, what: str, delay_s: float) -> None:
        self._disarm()
        self.timer = self.start_timer(delay_s, what)

    def _disarm(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
