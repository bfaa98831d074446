"""Faults to plant in queues, credit, deletions and the definitions of a node."""

from __future__ import annotations

from mutants.planted import Mutant

QUEUES = {
    "consumers of ended channels stay in their rings": Mutant(
        "Consumers.remove_channel", "if len(gone) > self.active: ...", ""
    ),
    "only one ring forgets them": Mutant(
        "Consumers._drop_gone",
        "{each.spec.priority for each in gone}",
        "{max((each.spec.priority for each in gone))}",
    ),
    "they still count as active": Mutant(
        "Consumers._count_out", "self.active -= not consumer.blocked", ""
    ),
    "a higher priority displaces the active consumer": Mutant(
        "Consumers._activate_next", "self.single_active is None", "True"
    ),
    "nobody takes over from a channel that ends": Mutant(
        "Consumers.remove_channel", "self._activate_next(...)", "pass"
    ),
    "the active consumer that has gone stays active": Mutant(
        "Consumers._count_out", "consumer is self.single_active", "False"
    ),
    "the lowest priority takes over": Mutant(
        "WaitingConsumers.take_first", "self._priorities[-1]", "self._priorities[0]"
    ),
    "the youngest takes over": Mutant("WaitingConsumers.take_first", "iter", "reversed"),
    "messages that wait do not go to the new active consumer": Mutant(
        "AmqQueue._consumers_left", "if self.ready: ...", ""
    ),
    "an account is closed without its rest": Mutant(
        "Publishers.close_idle", "receiver.grant_rest()", "Grant(0, 0)"
    ),
    "an account is closed while its channel waits for confirms": Mutant(
        "Publishers.close_idle", "channel not in waiting", "channel"
    ),
    "an account is whole although credit is out": Mutant(
        "CreditSender.is_whole", "not self._messages and (not self._bytes)", "True"
    ),
    "a sender is free with messages and without bytes": Mutant(
        "CreditSender.grant",
        "self._messages >= self._messages_initial or self._bytes >= self._bytes_initial",
        "self._messages >= self._messages_initial",
    ),
    "bytes are not granted": Mutant(
        "CreditReceiver.received",
        "self._messages < self._messages_more_after and self._bytes < self._bytes_more_after",
        "self._messages < self._messages_more_after",
    ),
    "the oldest are requeued first": Mutant(
        "Requeueing._take_youngest", "self._keys.pop()", "self._keys.pop(0)"
    ),
    "consumers stay busy for the capacity": Mutant(
        "Consumers._join", "if self.capacity.is_busy: ...", ""
    ),
    "consumers are never busy for the capacity": Mutant(
        "Consumers.block_all", "self.capacity.busy()", ""
    ),
    "time in which consumers are busy counts as ready": Mutant(
        "Capacity.now", "(now_s - self._changed_s) * (not self.is_busy)", "now_s - self._changed_s"
    ),
    "cycles are folded twice": Mutant(
        "Capacity.ready", "self._since_s, self._ready_s = ...", "self._since_s = now_s"
    ),
    "what an ended channel refused is requeued twice": Mutant(
        "Requeueing.forget", "deque(...)", "self._refused"
    ),
}

LETTERS = {
    "a message is given up when the first target has answered": Mutant(
        "DeadLetterBatch.is_done",
        "return ...",
        "return len(self.owing) < 2 and self.sent >= len(self.targets)",
    ),
    "a wide batch is done after its first slice": Mutant(
        "DeadLetterBatch.is_done", "self.sent >= len(...)", ""
    ),
    "an answer for a part counts for the batch": Mutant(
        "DeadLettersInFlight.answered", "left > stop - start", "left > count"
    ),
    "an answer counts for its first batch only": Mutant(
        "DeadLettersInFlight.answered", "place += 1", "break"
    ),
    "letters of a target that crashed are forgotten": Mutant(
        "DeadLetters._target_down", "if not deleted: ...", "pass"
    ),
    "letters go again to one that is deleted": Mutant(
        "DeadLetters._send", "if target.state != 'deleted': ...", "self._retry_later(batch, target)"
    ),
    "a source dead-letters without bound": Mutant(
        "DeadLetters.room",
        "DEAD_LETTERS_IN_FLIGHT - self._flight.count - self._waiting_count",
        "DEAD_LETTERS_IN_FLIGHT",
    ),
    "damaged messages stay unacked": Mutant(
        "DeadLetters._look_up_rejected", "self._backing.ack(...)", "pass"
    ),
    "letters of different persistence travel together": Mutant(
        "_go_together",
        "one.persistent == other.persistent and one.reply_keys == other.reply_keys",
        "one.reply_keys == other.reply_keys",
    ),
    "rejected messages that must be read are passed over": Mutant(
        "DeadLetters._look_up_rejected", "seqs = seqs[:seqs.index(...)]", ""
    ),
    "letters are sent although the disk does not follow": Mutant(
        "DeadLetters.send_waiting",
        "left > 0 and (not self._is_under_alarm) and (not self._waits_for_store())",
        "left > 0 and (not self._is_under_alarm)",
    ),
    "the disk's callback outlives a deleted queue": Mutant(
        "DeadLetters.end", "store.backpressure.forget(...)", "pass"
    ),
    "a rejection does not end a cycle": Mutant(
        "died_since_rejection",
        "letter != 'F' or death.get(...) == ('S', REJECTED)",
        "letter != 'F'",
    ),
    "the first death is told each time": Mutant(
        "_with_death", "if before is None: ...", "if True: ..."
    ),
    "expired messages that wait are delivered": Mutant(
        "AmqQueue.drop_expired",
        "if dead_letters is None or dead_letters.room(): ...\nreturn False",
        "if dead_letters is None or dead_letters.room(): ...\nreturn True",
    ),
    "credit is granted although letters are slow": Mutant(
        "Overflow.control_credit", "publishers.withhold_credit()", "pass"
    ),
    "credit that was withheld is lost": Mutant(
        "Publishers.release_credit", "self._grant(...)", "pass"
    ),
    "what was dropped at once counts against what follows": Mutant(
        "Overflow.__init__",
        "limits.refuses or (has_priorities and limits.has_bytes)",
        "limits.refuses",
    ),
    "refused messages stay in the store": Mutant(
        "Overflow._refuse", "self._backing.discard(...)", ""
    ),
    "a full disk answers for a queue that keeps the letter": Mutant(
        "publishers._take", "but is not None and channel in but", "False"
    ),
    "a limit takes one message too many": Mutant(
        "LengthLimits.leading", "ready < self.length", "ready <= self.length"
    ),
    "a limit drops one message too many": Mutant(
        "LengthLimits.excess", "ready - self.length", "ready - self.length + 1"
    ),
}

DELAYS = {
    "a message comes a part of a ms early": Mutant("DelayQueue.take_in", "now_ms + 1", "now_ms"),
    "what is not safe yet is confirmed": Mutant(
        "DelayQueue.take_in", "count if safe else 0", "count"
    ),
    "an earlier message waits for the timer of a later one": Mutant(
        "DelayQueue._time", "self._timer_at_ms <= at_ms", "True"
    ),
    "a clock that is set is not looked at": Mutant(
        "DelayQueue._time", "min(...)", "(at_ms - now_ms) / 1000"
    ),
    "what is recovered has no times": Mutant(
        "DelayQueue._schedule_recovered", "self._schedule.add(...)", "pass"
    ),
    "messages that are on their way are withdrawn": Mutant(
        "DelayQueue._withdraw", "time_ms > due_ms and seq >= purged_below", "seq >= purged_below"
    ),
    "messages that were purged are withdrawn": Mutant(
        "DelayQueue._withdraw", "time_ms > due_ms and seq >= purged_below", "time_ms > due_ms"
    ),
    "the queue outlives its exchange": Mutant(
        "DelayQueue._work", "not self._has_exchange()", "False"
    ),
    "it waits for any exchange of the name": Mutant(
        "DelayQueue._has_exchange",
        "exchange is not None and exchange.type == DELAYED",
        "exchange is not None",
    ),
    "due messages that have died in a target are dropped": Mutant(
        "DelayRules", "finds_cycles = False", "finds_cycles = True"
    ),
    "messages that are due are delayed again": Mutant("DelayHeads.dead_letter", "-delay", "delay"),
    "consumers get the negated delay": Mutant(
        "DelayHeads.dead_letter",
        "DeadLetter(...)",
        "DeadLetter(routed_as, keys, headers, seen.persistent, routed_as)",
    ),
    "withdrawn messages are due": Mutant("Schedule.take_due", "seq in withdrawn", "False"),
    "messages of the present ms wait": Mutant("Schedule.take_due", "now_ms + 1", "now_ms"),
    "messages of one ms lose their order": Mutant(
        "Schedule.add", "time_ms << _SEQ_BITS | seq", "time_ms << _SEQ_BITS | seq ^ 1"
    ),
    "every message with a delay waits": Mutant(
        "DelayedMatcher.match", "delay_ms(...) > 0", "delay_ms(...)"
    ),
    "the inner type finds deleted queues": Mutant(
        "Topology.add_exchange", "exchange.matchers", "exchange.matchers[:1]"
    ),
    "clients publish to delay queues": Mutant(
        "_queues_named", "name in queues and (not name.startswith(QUEUE_PREFIX))", "name in queues"
    ),
    "clients consume from delay queues": Mutant(
        "VHost.find_queue", "is_anothers or entry.delayed_exchange is not None", "is_anothers"
    ),
    "nobody tells the queue that its exchange is gone": Mutant(
        "Deletions.removed_rows",
        "entry is not None and entry.ref is not None and (not entry.is_remote)",
        "False",
    ),
    "an exchange that comes back does not find its queue": Mutant(
        "VHost.add_exchange", "exchange.matcher.queue = ...", "pass"
    ),
}

DELIVERY_COUNTS = {
    "the limit is reached one time too early": Mutant(
        "DeliveryCounts.came_back", "count > limit", "count >= limit"
    ),
    "what is given up keeps its count": Mutant("DeliveryCounts.came_back", "counts.pop(...)", ""),
    "a policy that goes leaves its counts": Mutant("counts_of", "before.forget_all()", "pass"),
    "counts are shown by classic queues": Mutant("DeliveryCounts.shown", "not self.are_shown", ""),
    "acked messages keep their counts": Mutant(
        "BackingProxy.ack", "self.counts.forget(seqs)", "pass"
    ),
    "expired messages keep their counts": Mutant(
        "BackingProxy._dropwhile", "counts.forget(...)", ""
    ),
    "purged messages keep their counts": Mutant(
        "DeliveryCounts.keep_only", "self.forget_all()\nself._counts.update(kept)", "pass"
    ),
    "a purge forgets what is unacked": Mutant(
        "DeliveryCounts.keep_only", "self._counts.update(kept)", ""
    ),
    "messages that are given up are requeued": Mutant(
        "BackingProxy.requeue", "seqs = ...", "self.counts.came_back(seqs)"
    ),
    "damaged records of counts are read": Mutant(
        "CountFile._apply_all", "extend(...) != _CRC.unpack_from(...)[0]", "False"
    ),
    "the end of a file is not where its damage begins": Mutant(
        "CountFile._read",
        "end == len(data) and header.crc_kind == self._identity.crc_kind",
        "header.crc_kind == self._identity.crc_kind",
    ),
    "a write that failed is not made good": Mutant(
        "CountFile.write", "file, self._file = ...", "file = self._file"
    ),
    "changes before a purge are written behind it": Mutant(
        "DeliveryCountLog.forget", "self._changed.pop(...)", ""
    ),
    "an error ends the writing": Mutant(
        "DeliveryCountLog._written", "self._write_in(RETRY_S)", "pass"
    ),
    "what changes during a write waits for ever": Mutant(
        "DeliveryCountLog._written", "self._write_in(0.0)", "pass"
    ),
}

DEFINITIONS = {
    "clients are let in before the queues are started": Mutant(
        "Connections.open_vhost",
        "vhost.state.now is not State.RUNNING",
        "vhost.state.now not in (State.RECOVERING, State.RUNNING)",
    ),
    "the first vhost that serves ends the starts": Mutant(
        "VhostStarter._end_if_started", "not self._have_begun", "False"
    ),
    "a queue that two ask for is started twice": Mutant(
        "QueueSup.init", "supervisor is not None and supervisor.is_alive", "False"
    ),
    "a queue that was deleted is started": Mutant(
        "QueueSup.init",
        "entry.state == 'deleted' or (supervisor is not None and supervisor.is_alive)",
        "supervisor is not None and supervisor.is_alive",
    ),
    "a queue's row goes with the last of its bindings": Mutant(
        "VHost.queue_deleted",
        "self.is_written(...)",
        "entry.durable and (not self.topology.is_leaving(QUEUE, entry.name))",
    ),
    "a queue takes a name whose bindings are not dropped": Mutant(
        "queue_declare._declare", "yield from vhost.deletions.name_free(...)", ""
    ),
    "an exchange takes a name whose bindings are not dropped": Mutant(
        "exchange_declare._declare", "vhost.deletions.name_free(EXCHANGE, name)", "()"
    ),
    "the answer does not wait for the last bindings": Mutant(
        "VHost._end_queue", "yield from self.deletions.ended(entry)", ""
    ),
    "rows of dropped bindings stay": Mutant(
        "Deletions._drop_some", "self._metadata.delete_later(rows)", "pass"
    ),
    "bindings that a crash has left stay": Mutant(
        "_bind_all", "vhost.forget_bindings(rows)", "pass"
    ),
    "deletions find no room on a full disk": Mutant(
        "Environment.commit",
        "puts_bytes and (not may_use_reserve)",
        "not may_use_reserve and changes",
    ),
    "the reserve is not for those who may use it": Mutant(
        "Environment.commit", "puts_bytes and (not may_use_reserve)", "puts_bytes"
    ),
    "an environment without its map is used": Mutant(
        "Environment._grow", "isinstance(...)", "False"
    ),
    "an environment that failed is used": Mutant(
        "Environment.commit", "self._is_lost = True", "pass"
    ),
}
