"""Faults to plant in transactions and direct replies."""

from __future__ import annotations

from mutants.planted import Mutant

_TRANSACTION, _UNCOMMITTED = "channel/transaction.py", "channel/uncommitted.py"
_PUBLISH, _BATCH, _CHANNEL, _REPLIES = (
    "channel/publishing/publish.py",
    "channel/publishing/batch.py",
    "channel/channel.py",
    "channel/publishing/replies.py",
)
_CONSUMERS, _DELIVERIES = "channel/reply_consumers.py", "channel/consuming/deliveries.py"

MUTANTS = {
    "commit-ok before the queues have answered": Mutant(
        _TRANSACTION, "if publisher.awaits_confirms:\n            self", "if False:\n            self"
    ),
    "a refused publish is committed": Mutant(
        _TRANSACTION, "self._is_refused |= not all(is_ack for is_ack, _, _ in answers)", "pass"
    ),
    "credit is not waited for": Mutant(
        _TRANSACTION, "if publisher.must_wait:", "if False and publisher.must_wait:"
    ),
    "a commit is not cut": Mutant(_TRANSACTION, " or publisher.work_left <= 0", ""),
    "the rest of a wide batch is left": Mutant(
        _TRANSACTION, "while publisher.fan_out is not None:", "while False:"
    ),
    "settlements come before the publishes": Mutant(
        _TRANSACTION,
        "            yield from self._publish_all(publisher)\n"
        "            yield from self._settle_everything()\n",
        "            yield from self._settle_everything()\n"
        "            yield from self._publish_all(publisher)\n",
    ),
    "a rollback keeps the settlements": Mutant(
        _TRANSACTION,
        "        self._forget_settlements()\n        batches",
        "        batches",
    ),
    "a rollback keeps the publishes": Mutant(
        _TRANSACTION,
        "batches, self._batches = self._batches, deque()",
        "batches = self._batches.copy()",
    ),
    "a tag is settled twice": Mutant(
        _TRANSACTION, "return tag <= self._settled_to or tag in self._singly", "return False"
    ),
    "recover takes what is settled": Mutant(
        _TRANSACTION, " if not self._is_settled(tag)]", " if tag]"
    ),
    "the connection ends amid a commit": Mutant(
        _CHANNEL, "if not is_applying and not self.deliveries.is_settling:", "if True:"
    ),
    "deliveries come back amid a commit": Mutant(
        _CHANNEL, "self.transaction.postponed.append(mail)", "pass"
    ),
    "nobody minds commands amid a commit": Mutant(
        _CHANNEL, "if run[RUN_KIND] != END_OF_RUNS and", "if run[RUN_KIND] == END_OF_RUNS and"
    ),
    "what is kept is counted for ever": Mutant(
        _UNCOMMITTED, "self.size_bytes -= transaction.size_bytes", "pass"
    ),
    "nothing is refused": Mutant(
        _UNCOMMITTED, "if self.size_bytes > limit_bytes and", "if False and"
    ),
    "who keeps little is refused": Mutant(
        _UNCOMMITTED, " and transaction.size_bytes * self.count > limit_bytes", ""
    ),
    "other targets are taken in": Mutant(
        _BATCH, "later.queues is self.queues", "True"
    ),
    "the queue of another time is lost": Mutant(
        _PUBLISH, 'known.get(each.name) if each.state == "deleted" else each', "each"
    ),
    "replies pile up": Mutant(
        _REPLIES, "        if is_full and consumer.channel not in", "        if False and consumer.channel not in"
    ),
    "who never reads is waited for": Mutant(_CONSUMERS, "consumer.is_stalled = True", "pass"),
    "once stalled, always dropped": Mutant(_REPLIES, "consumer.is_stalled = False", "pass"),
    "the wait has no end": Mutant(
        _REPLIES, "            if not self._awaited:\n                self._wait", "            if False:\n                self._wait"
    ),
    "an end does not end the wait": Mutant(
        _REPLIES, "            self._channel.watch(channel)\n", "            pass\n"
    ),
    "a busy channel hides what waits": Mutant(
        _CONSUMERS, "            reply.waits()\n", "            pass\n"
    ),
    "what a busy channel has is not full": Mutant(
        _CONSUMERS, "gate.waiting_bytes + self", "self"
    ),
    "a reply for an earlier consumer": Mutant(
        _DELIVERIES, "if consumer is not mail.consumer:", "if consumer is None:"
    ),
}  # fmt: skip
