"""The connections of a node that have something to send, and the sending, all together.

A writer whose socket is plain keeps its bytes until the drain of the run queue ends. Then the kernel sends the bytes
of all these writers, with one system call for each (``amqp.kernel.send``). asyncio's transports would need that system
call as well, and before it several calls of Python and a queue of their own. Answers to steps of a handshake do not
wait for the end of the drain (``send_now``): the client sends its next step meanwhile.

A loop that has events of thousands of sockets does not come to a drain for a tenth of a second. So the bytes of the
first ``MANY`` connections are sent when another one joins them.

The connection that was written to last is sent to first. That is the publisher's, as a queue delivers before it
confirms; a publisher that waits for the confirm goes on while the delivery is sent. With one pair of them at a time
that is an eighth more messages.

What a socket does not take goes to its transport, which waits for room and asks the protocol to pause. So does all that
is written until the transport is empty again, and the errors of a socket show there, as ever.

While the kernel sends nothing else runs, so no descriptor is closed, and given to another connection, meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.amqp.kernel import send

if TYPE_CHECKING:
    from leveret.actors.runtime.runtime import Runtime
    from leveret.broker.connection.writer import Writer


MANY: Final = 64


class PendingWrites:
    """The writers that have something to send when the drain ends."""

    __slots__ = ("_is_due", "_scheduler", "_writers")

    def __init__(self, runtime: Runtime) -> None:
        self._scheduler = runtime.turns.scheduler
        self._writers: list[Writer] = []
        self._is_due = False

    def add(self, writer: Writer) -> None:
        """Have a writer send at the end of the drain. It calls this with its first bytes after each time it sent."""
        if len(self._writers) >= MANY:
            self._write()
        if not self._is_due:
            self._is_due = True
            self._scheduler.after_drain(self._come_due, is_first=True)
        self._writers.append(writer)

    def send_now(self, writer: Writer) -> None:
        """Send the bytes of one connection at once. Other connections' bytes are sent when the drain ends."""
        if writer.plain_descriptor < 0:
            writer.flush()
        else:
            self._send([writer])

    def _come_due(self) -> None:
        self._is_due = False
        self._writers.reverse()
        self._write()

    def _write(self) -> None:
        waiting, self._writers = self._writers, []
        self._send(waiting)

    def _send(self, waiting: list[Writer]) -> None:
        writers: list[Writer] = []
        descriptors: list[int] = []
        outputs: list[bytes] = []
        for writer in waiting:
            try:
                output = writer.take()
            except Exception as error:  # noqa: BLE001  # the others must send
                self._scheduler.report("a connection cannot write", error)
                continue
            if output:
                writers.append(writer)
                descriptors.append(writer.plain_descriptor)
                outputs.append(output)
        if not writers:
            return
        for place, sent_bytes in send(descriptors, outputs):
            writers[place].leave(outputs[place][sent_bytes:])
        for writer in writers:
            if writer.after_flush is not None:
                writer.after_flush()
