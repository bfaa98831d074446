"""A queue under test: its supervisor and pair on a runtime driven by hand, and channels to talk to it."""

from __future__ import annotations

from typing import Any

from leveret.actors.actor import OtpActor
from leveret.actors.gen_server import GenServer
from leveret.actors.runtime.ref import Ref
from leveret.actors.runtime.runtime import Runtime
from leveret.broker import mail, queue_requests
from leveret.broker.limiter import ChannelLimiter, DeliveryGate
from leveret.broker.queue.storage.factory import in_memory
from leveret.broker.queue.supervisor import QueueSup
from leveret.broker.registry.registry import QueueEntry
from leveret.broker.vhost.policies.policies import Policies, apply_to_queue
from leveret.metadata.tables import PolicyRow
from leveret.queue_backing.actor import MakeQueue
from leveret.testing.virtual_clock import VirtualClock


class Inbox(OtpActor):
    """An actor that keeps its mail."""

    def init(self, box: list[Any]) -> None:
        self.box = box

    def handle_mail(self, message: object, sender: Ref | None) -> None:
        self.box.append(message)


class Asker(GenServer):
    """Asks one thing and keeps the answer."""

    def init(self, to: Ref, request: object, answers: list[Any]) -> None:
        self.call(to, request, answers.append, None)


class Channel:
    """A channel's calls of a queue, and the mail it got back."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.box: list[Any] = []
        self.ref = rig.runtime.spawn(Inbox, self.box, label="channel")
        self.gate = DeliveryGate()
        self.limiter = ChannelLimiter()

    def send(self, message: object) -> None:
        self.rig.runtime.send(self.rig.queue, message)

    def ask(self, request: object) -> Any:
        answer = self.rig.runtime.call_inline(self.rig.queue, request)
        self.rig.settle()
        return answer

    def start_asking(self, request: object) -> None:
        """Ask by mail; the answer goes into the box when it comes."""
        self.rig.runtime.spawn(Asker, self.rig.queue, request, self.box)

    def publish(
        self,
        *bodies: bytes,
        persistent: bool = False,
        seqno: int = 0,
        expiration_ms: int | None = None,
        head: bytes = b"head",
    ) -> None:
        messages = [(b"origin", head, body) for body in bodies]
        head_bytes = len(head) * len(bodies)
        size_bytes = sum(map(len, bodies)) + head_bytes
        first, self.rig.next_msg_no = self.rig.next_msg_no, self.rig.next_msg_no + len(bodies)
        self.send(
            mail.Publish(
                messages,
                persistent,
                [(self.ref, len(bodies), size_bytes, seqno)],
                expiration_ms,
                first,
                head_bytes=head_bytes,
            )
        )

    def consume(self, tag: bytes, **changes: Any) -> Any:
        spec: dict[str, Any] = {"no_ack": False, "exclusive": False, "priority": 0, "prefetch": 0}
        spec.update({"owner": self.rig.owner, **changes})
        return self.ask(
            queue_requests.Consume(self.ref, tag=tag, limiter=self.limiter, gate=self.gate, **spec)
        )

    def ack(self, tag: bytes | None, *seqs: int) -> None:
        self.limiter.in_flight -= len(seqs) if tag is not None else 0
        self.send(mail.Ack(self.ref, tag, list(seqs)))
        self.rig.settle()

    def requeue(self, tag: bytes | None, *seqs: int) -> None:
        self.limiter.in_flight -= len(seqs) if tag is not None else 0
        self.send(mail.Requeue(self.ref, tag, list(seqs)))
        self.rig.settle()

    def take(self, kind: type) -> list[Any]:
        """Let everything settle; take the mails of one kind out of the box."""
        self.rig.settle()
        taken = [message for message in self.box if type(message) is kind]
        self.box[:] = [message for message in self.box if type(message) is not kind]
        return taken

    def bodies(self, tag: bytes | None = None) -> list[bytes]:
        """Take the bodies delivered to one consumer (or to all)."""
        return [message[2] for d in self._take_deliveries(tag) for message in d.messages]

    def deliveries(self, tag: bytes | None = None) -> list[tuple[bytes, int | None, bool]]:
        """Take the deliveries: body, seq, redelivered."""
        got = []
        for d in self._take_deliveries(tag):
            seqs = d.seqs or [None] * len(d.messages)
            got += [
                (message[2], seq, position < d.redelivered)
                for position, (message, seq) in enumerate(zip(d.messages, seqs, strict=True))
            ]
        return got

    def _take_deliveries(self, tag: bytes | None) -> list[mail.Deliver]:
        every = self.take(mail.Deliver)
        self.box += [d for d in every if tag is not None and d.consumer != tag]
        return [d for d in every if tag is None or d.consumer == tag]

    def die(self, reason: object = "shutdown") -> None:
        self.rig.runtime.exit(self.ref, reason)
        self.rig.settle()


class Rig:
    """One queue in vhost '/'."""

    def __init__(
        self,
        make_backing: MakeQueue = in_memory,
        is_exclusive: bool = False,
        name: str = "q",
        vhost: Any = None,
        **entry: Any,
    ) -> None:
        self.clock = VirtualClock()
        self.runtime = Runtime(clock=self.clock)
        self.owner = self.runtime.spawn(Inbox, [], label="reader")
        self.deleted: list[QueueEntry] = []
        self.next_msg_no = 1
        self.entry = QueueEntry(
            "/",
            name,
            exclusive=self.owner if is_exclusive else None,
            on_deleted=self.deleted.append,
            **entry,
        )
        self.entry.vhost = vhost
        self.sup = self.runtime.spawn(QueueSup, self.entry, make_backing, label=f"queue:{name}")
        self.settle()

    @property
    def queue(self) -> Ref:
        assert self.entry.ref is not None
        return self.entry.ref

    def settle(self) -> None:
        self.runtime.run_until_idle()

    def channel(self) -> Channel:
        return Channel(self)

    def set_policy(self, **definition: object) -> None:
        """Let exactly this apply, as an operator does who sets a policy."""
        policies = Policies()
        if definition:
            named = {key.replace("_", "-"): value for key, value in definition.items()}
            policies.put(PolicyRow("/", "p", "", named))
        if apply_to_queue(policies, self.entry):
            self.runtime.send(self.queue, mail.PolicyChanged())
        self.settle()

    def stat(self) -> tuple[int, int]:
        """Ready messages and consumers, without touching x-expires."""
        answer: tuple[int, int] = self.runtime.call_inline(
            self.queue, queue_requests.Stat(touch=False)
        )
        self.settle()
        return answer

    def info(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.runtime.call_inline(self.queue, queue_requests.Info())
        return answer


def longs(**arguments: int) -> dict[str, tuple[str, Any]]:
    """Queue arguments of integer type, ``x_expires=5`` for ``x-expires``."""
    return {name.replace("_", "-"): ("l", value) for name, value in arguments.items()}
