"""Faults to plant in transactions and direct replies."""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "commit-ok before the queues have answered": Mutant(
        "Transaction.commit", "if publisher.awaits_confirms: ...", "if False: ..."
    ),
    "a refused publish is committed": Mutant(
        "Transaction.answered", "self._is_refused |= not all(...)", "pass"
    ),
    "credit is not waited for": Mutant(
        "Transaction._publish_all", "publisher.must_wait", "False and publisher.must_wait"
    ),
    "a commit is not cut": Mutant(
        "Transaction._publish_all",
        "publisher.fan_out is not None or publisher.work_left <= 0",
        "publisher.fan_out is not None",
    ),
    "the rest of a wide batch is left": Mutant(
        "Transaction._publish_all", "while publisher.fan_out is not None: ...", "while False: ..."
    ),
    "settlements come before the publishes": Mutant(
        "Transaction.commit",
        "yield from self._publish_all(publisher)\nyield from self._settle_everything()",
        "yield from self._settle_everything()\nyield from self._publish_all(publisher)",
    ),
    "a rollback keeps the settlements": Mutant(
        "Transaction.rollback", "self._forget_settlements()", ""
    ),
    "a rollback keeps the publishes": Mutant(
        "Transaction.rollback", "batches, self._batches = ...", "batches = self._batches.copy()"
    ),
    "a tag is settled twice": Mutant(
        "Transaction._is_settled", "tag <= self._settled_to or tag in self._singly", "False"
    ),
    "recover takes what is settled": Mutant(
        "Transaction._unsettled", "not self._is_settled(tag)", "tag"
    ),
    "the connection ends amid a commit": Mutant(
        "Channel.on_exit", "not is_applying and (not self.deliveries.is_settling)", "True"
    ),
    "deliveries come back amid a commit": Mutant(
        "Channel.on_peer_ended", "self.transaction.postponed.append(mail)", "pass"
    ),
    "nobody minds commands amid a commit": Mutant(
        "channel.Channel.refuse_held",
        "run[RUN_KIND] != END_OF_RUNS",
        "run[RUN_KIND] == END_OF_RUNS",
    ),
    "what is kept is counted for ever": Mutant(
        "OpenTransactions.let_go", "self.size_bytes -= transaction.size_bytes", "pass"
    ),
    "nothing is refused": Mutant("OpenTransactions.keep", "self.size_bytes > limit_bytes", "False"),
    "who keeps little is refused": Mutant(
        "OpenTransactions.keep",
        "self.size_bytes > limit_bytes and transaction.size_bytes * self.count > limit_bytes",
        "self.size_bytes > limit_bytes",
    ),
    "other targets are taken in": Mutant("Batch.goes_with", "later.queues is self.queues", "True"),
    "the queue of another time is lost": Mutant(
        "Publisher.commit", "known.get(...) if each.state == 'deleted' else each", "each"
    ),
    "replies pile up": Mutant(
        "Replies.send",
        "is_full and consumer.channel not in self._awaited",
        "False and consumer.channel not in self._awaited",
    ),
    "who never reads is waited for": Mutant(
        "ReplyConsumers.stalls", "consumer.is_stalled = True", "pass"
    ),
    "once stalled, always dropped": Mutant("Replies.send", "consumer.is_stalled = False", "pass"),
    "the wait has no end": Mutant("Replies.goes_on", "not self._awaited", "False"),
    "an end does not end the wait": Mutant(
        "Replies._wait_for", "self._channel.watch(channel)", "pass"
    ),
    "a busy channel hides what waits": Mutant("ReplyConsumers.send", "reply.waits()", "pass"),
    "what a busy channel has is not full": Mutant(
        "ReplyConsumer.is_full",
        "gate.waiting_bytes + self.writer.unsent_bytes",
        "self.writer.unsent_bytes",
    ),
    "a reply for an earlier consumer": Mutant(
        "Deliveries.reply", "consumer is not mail.consumer", "consumer is None"
    ),
}
