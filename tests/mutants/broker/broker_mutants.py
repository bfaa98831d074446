"""Faults to plant in queues, credit, deletions and the definitions of a node."""

from __future__ import annotations

from mutants.planted import Mutant

_CONSUMERS, _PUBLISHERS = (
    "broker/queue/consumers/consumers.py",
    "broker/queue/publishers/publishers.py",
)
_WAITING = "broker/queue/consumers/waiting_consumers.py"
_REQUEUEING, _CREDIT = "broker/queue/requeueing.py", "actors/credit.py"
_VHOST, _DELETIONS = "broker/vhost/vhost.py", "broker/vhost/deletions.py"
_LETTERS, _FLIGHT = (
    "broker/queue/dead_letters/dead_letters.py",
    "broker/queue/dead_letters/in_flight.py",
)
_HEADERS, _OVERFLOW = (
    "broker/queue/dead_letters/death_headers.py",
    "broker/queue/limits/overflow.py",
)
_LIMITS = "broker/queue/limits/length_limits.py"
_DELAY_QUEUE, _SCHEDULE = "broker/queue/delays/delay_queue.py", "broker/queue/delays/schedule.py"
_DELAYED = "routing/delayed.py"
_ENVIRONMENT = "metadata/environment.py"

QUEUES = {
    "consumers of ended channels stay in their rings": Mutant(
        _CONSUMERS,
        "            if len(gone) > self.active:\n                self._drop_gone()\n",
        "",
    ),
    "only one ring forgets them": Mutant(
        _CONSUMERS,
        "for priority in {each.spec.priority for each in gone}:",
        "for priority in {max(each.spec.priority for each in gone)}:",
    ),
    "they still count as active": Mutant(
        _CONSUMERS,
        "        self.active -= not consumer.blocked\n        self._only",
        "        self._only",
    ),
    "a higher priority displaces the active consumer": Mutant(
        _CONSUMERS,
        "        if self.single_active is None:\n            self.single_active = waiting",
        "        if True:\n            self.single_active = waiting",
    ),
    "nobody takes over from a channel that ends": Mutant(
        _CONSUMERS,
        "            self._activate_next(self._waiting)\n        return len(record",
        "            pass\n        return len(record",
    ),
    "the active consumer that has gone stays active": Mutant(
        _CONSUMERS, "        if consumer is self.single_active:", "        if False:"
    ),
    "the lowest priority takes over": Mutant(
        _WAITING, "self._levels[self._priorities[-1]]", "self._levels[self._priorities[0]]"
    ),
    "the youngest takes over": Mutant(
        _WAITING, "next(iter(self._levels", "next(reversed(self._levels"
    ),
    "messages that wait do not go to the new active consumer": Mutant(
        "broker/queue/amqqueue.py",
        "            if self.queue.ready:\n                self.queue.go_on_later()\n            return",
        "            return",
    ),
    "an account is closed without its rest": Mutant(
        _PUBLISHERS, "rest = receiver.grant_rest()", "rest = Grant(0, 0)"
    ),
    "an account is closed while its channel waits for confirms": Mutant(
        _PUBLISHERS, "                if channel not in waiting:", "                if channel:"
    ),
    "an account is whole although credit is out": Mutant(
        _CREDIT,
        "return not self._messages and not self._bytes",
        "return True",
    ),
    "a sender is free with messages and without bytes": Mutant(
        _CREDIT,
        "if self._messages >= self._messages_initial or self._bytes >= self._bytes_initial:",
        "if self._messages >= self._messages_initial:",
    ),
    "bytes are not granted": Mutant(_CREDIT, " and self._bytes < self._bytes_more_after:", ":"),
    "the oldest are requeued first": Mutant(
        _REQUEUEING, "self._buckets.pop(self._keys.pop())", "self._buckets.pop(self._keys.pop(0))"
    ),
    "consumers stay busy for the capacity": Mutant(
        _CONSUMERS, "        if self.capacity.is_busy:\n            self.capacity.ready()\n", ""
    ),
    "consumers are never busy for the capacity": Mutant(
        _CONSUMERS, "        self.capacity.busy()\n", ""
    ),
    "time in which consumers are busy counts as ready": Mutant(
        "broker/queue/consumers/capacity.py", " * (not self.is_busy)", ""
    ),
    "cycles are folded twice": Mutant(
        "broker/queue/consumers/capacity.py",
        "self._since_s, self._ready_s = now_s, 0.0",
        "self._since_s = now_s",
    ),
    "what an ended channel refused is requeued twice": Mutant(
        _REQUEUEING,
        "deque(each for each in self._refused if each.channel is not channel)",
        "self._refused",
    ),
}

LETTERS = {
    "a message is given up when the first target has answered": Mutant(
        _FLIGHT, "not self.owing and not self.retries and", "len(self.owing) < 2 and"
    ),
    "a wide batch is done after its first slice": Mutant(
        _FLIGHT, " and self.sent >= len(self.targets)", ""
    ),
    "an answer for a part counts for the batch": Mutant(
        _FLIGHT, "if left > stop - start:", "if left > count:"
    ),
    "an answer counts for its first batch only": Mutant(
        _FLIGHT, "                place += 1\n", "                break\n"
    ),
    "letters of a target that crashed are forgotten": Mutant(
        _LETTERS,
        "            if not deleted:\n                self._retry_later(batch, entry)\n",
        "            pass\n",
    ),
    "letters go again to one that is deleted": Mutant(
        _LETTERS, 'elif target.state != "deleted":', "else:"
    ),
    "a source dead-letters without bound": Mutant(
        _LETTERS,
        "LETTERS_IN_FLIGHT - self._flight.count - self._waiting_count",
        "LETTERS_IN_FLIGHT",
    ),
    "damaged messages stay unacked": Mutant(
        _LETTERS, "self._backing.ack(list(set(seqs).difference(own)))", "pass"
    ),
    "letters of different persistence travel together": Mutant(
        _LETTERS, "one.persistent == other.persistent and ", ""
    ),
    "rejected messages that must be read are passed over": Mutant(
        _LETTERS, "            seqs = seqs[: seqs.index(found[count][SEQ])]\n", ""
    ),
    "letters are sent although the disk does not follow": Mutant(
        _LETTERS, " and not self._waits_for_store()", ""
    ),
    "the disk's callback outlives a deleted queue": Mutant(
        _LETTERS,
        "            store.backpressure.forget(self._store_follows)\n",
        "            pass\n",
    ),
    "a rejection does not end a cycle": Mutant(
        _HEADERS, ' or death.get("reason") == ("S", REJECTED)', ""
    ),
    "the first death is told each time": Mutant(
        _HEADERS, "    if before is None:\n", "    if True:\n"
    ),
    "expired messages that wait are delivered": Mutant(
        "broker/queue/queue.py",
        "            self.go_on_later()\n        return False\n",
        "            self.go_on_later()\n        return True\n",
    ),
    "credit is granted although letters are slow": Mutant(
        _OVERFLOW, "            publishers.withhold_credit()\n", "            pass\n"
    ),
    "credit that was withheld is lost": Mutant(
        _PUBLISHERS, "            self._grant(*each)\n", "            pass\n"
    ),
    "what was dropped at once counts against what follows": Mutant(
        _OVERFLOW, "limits.refuses or (has_priorities and limits.has_bytes)", "limits.refuses"
    ),
    "refused messages stay in the store": Mutant(
        _OVERFLOW,
        "        self._backing.discard(publish.messages, persistent, publish.first_msg_no)\n",
        "",
    ),
    "a full disk answers for a queue that keeps the letter": Mutant(
        _PUBLISHERS, "or (but is not None and channel in but)", "or False"
    ),
    "a limit takes one message too many": Mutant(
        _LIMITS, "if ready < self.length and", "if ready <= self.length and"
    ),
    "a limit drops one message too many": Mutant(
        _LIMITS,
        "return ready - self.length, bytes_above",
        "return ready - self.length + 1, bytes_above",
    ),
}

_COUNTS, _COUNT_FILE = "broker/queue/limits/delivery_counts.py", "msg_store/format/count_file.py"
_COUNT_LOG, _PROXY = "msg_store/delivery_counts.py", "queue_backing/proxy.py"

DELAYS = {
    "a message comes a part of a ms early": Mutant(_DELAY_QUEUE, "now_ms + 1  #", "now_ms  #"),
    "what is not safe yet is confirmed": Mutant(
        _DELAY_QUEUE, "publish, count if safe else 0, first", "publish, count, first"
    ),
    "an earlier message waits for the timer of a later one": Mutant(
        _DELAY_QUEUE, "self._timer_at_ms <= at_ms", "True"
    ),
    "a clock that is set is not looked at": Mutant(
        _DELAY_QUEUE, "min((at_ms - now_ms) / 1000, TIMER_S_MAX)", "(at_ms - now_ms) / 1000"
    ),
    "what is recovered has no times": Mutant(
        _DELAY_QUEUE, "self._schedule.add(times_ms.values(), times_ms)", "pass"
    ),
    "messages that are on their way are withdrawn": Mutant(
        _DELAY_QUEUE, "if time_ms > due_ms and seq", "if seq"
    ),
    "messages that were purged are withdrawn": Mutant(_DELAY_QUEUE, " and seq >= purged_below", ""),
    "the queue outlives its exchange": Mutant(
        _DELAY_QUEUE, "and not self._has_exchange():", "and False:"
    ),
    "it waits for any exchange of the name": Mutant(
        _DELAY_QUEUE, "exchange is not None and exchange.type == DELAYED", "exchange is not None"
    ),
    "due messages that have died in a target are dropped": Mutant(
        "broker/queue/delays/delay_rules.py", "finds_cycles = False", "finds_cycles = True"
    ),
    "messages that are due are delayed again": Mutant(
        "broker/queue/delays/delay_rules.py", '"l", -delay)', '"l", delay)'
    ),
    "consumers get the negated delay": Mutant(
        "broker/queue/delays/delay_rules.py", "DeadLetter(head, keys", "DeadLetter(routed_as, keys"
    ),
    "withdrawn messages are due": Mutant(
        _SCHEDULE, "            if seq in withdrawn:\n", "            if False:\n"
    ),
    "messages of the present ms wait": Mutant(
        _SCHEDULE, "(now_ms + 1) << _SEQ_BITS", "now_ms << _SEQ_BITS"
    ),
    "messages of one ms lose their order": Mutant(
        _SCHEDULE, "time_ms << _SEQ_BITS | seq)", "time_ms << _SEQ_BITS | (seq ^ 1))"
    ),
    "every message with a delay waits": Mutant(
        _DELAYED, "delay_ms(head.headers) > 0", "delay_ms(head.headers)"
    ),
    "the inner type finds deleted queues": Mutant(
        "routing/topology.py",
        "for matcher in exchange.matchers:\n            matcher.leaving",
        "for matcher in exchange.matchers[:1]:\n            matcher.leaving",
    ),
    "clients publish to delay queues": Mutant(
        "routing/router.py", " and not name.startswith(QUEUE_PREFIX)", ""
    ),
    "clients consume from delay queues": Mutant(
        _VHOST, "is_anothers or entry.delayed_exchange is not None", "is_anothers"
    ),
    "nobody tells the queue that its exchange is gone": Mutant(
        _VHOST,
        "if entry is not None and entry.ref is not None and not entry.is_remote:",
        "if False:",
    ),
    "an exchange that comes back does not find its queue": Mutant(
        _VHOST,
        "            exchange.matcher.queue = self.topology.queues.get(queue_of(exchange.name))\n",
        "            pass\n",
    ),
}

DELIVERY_COUNTS = {
    "the limit is reached one time too early": Mutant(
        _COUNTS, "and count > limit:", "and count >= limit:"
    ),
    "what is given up keeps its count": Mutant(
        _COUNTS, "                counts.pop(seq, None)\n", ""
    ),
    "a policy that goes leaves its counts": Mutant(
        _COUNTS, "            before.forget_all()", "            pass"
    ),
    "counts are shown by classic queues": Mutant(
        _COUNTS, "if not self.are_shown or not fetched", "if not fetched"
    ),
    "acked messages keep their counts": Mutant(
        _PROXY, "            self.counts.forget(seqs)", "            pass"
    ),
    "expired messages keep their counts": Mutant(
        _PROXY, "        counts.forget(gone[: dropped.count])\n", ""
    ),
    "purged messages keep their counts": Mutant(
        _COUNTS, "        self.forget_all()\n        self._counts.update(kept)", "        pass"
    ),
    "a purge forgets what is unacked": Mutant(_COUNTS, "        self._counts.update(kept)\n", ""),
    "messages that are given up are requeued": Mutant(
        _PROXY, "            seqs = self.counts.came_back", "            self.counts.came_back"
    ),
    "damaged records of counts are read": Mutant(
        _COUNT_FILE, "if extend(seed, fields) != _CRC.unpack_from(data, at)[0]:", "if False:"
    ),
    "the end of a file is not where its damage begins": Mutant(
        _COUNT_FILE, "if end == len(data) and header", "if header"
    ),
    "a write that failed is not made good": Mutant(
        _COUNT_FILE, "file, self._file = self._file, None  #", "file = self._file  #"
    ),
    "changes before a purge are written behind it": Mutant(
        _COUNT_LOG, "        self._changed.pop(queue_no, None)\n", ""
    ),
    "an error ends the writing": Mutant(
        _COUNT_LOG, "            self._write_in(RETRY_S)", "            pass"
    ),
    "what changes during a write waits for ever": Mutant(
        _COUNT_LOG, "            self._write_in(0.0)", "            pass"
    ),
}

DEFINITIONS = {
    "clients are let in before the queues are started": Mutant(
        "broker/connection/connections.py",
        "vhost.state.now is not State.RUNNING",
        "vhost.state.now not in (State.RECOVERING, State.RUNNING)",
    ),
    "the first vhost that serves ends the starts": Mutant(
        "broker/node/bootstrap.py", "        if not self._have_begun:\n", "        if False:\n"
    ),
    "a queue that two ask for is started twice": Mutant(
        "broker/queue/supervisor.py", "(supervisor is not None and supervisor.is_alive)", "False"
    ),
    "a queue that was deleted is started": Mutant(
        "broker/queue/supervisor.py", 'entry.state == "deleted" or ', ""
    ),
    "a queue's row goes with the last of its bindings": Mutant(
        _VHOST,
        "        if self.is_written(entry.durable):\n            deletes.append(self.queue_row(entry))",
        "        if entry.durable and not self.topology.is_leaving(QUEUE, entry.name):\n"
        "            deletes.append(self.queue_row(entry))",
    ),
    "a queue takes a name whose bindings are not dropped": Mutant(
        "broker/vhost/queue_declare.py",
        "    yield from vhost.deletions.name_free(QUEUE, name)\n    yield from _forget",
        "    yield from _forget",
    ),
    "an exchange takes a name whose bindings are not dropped": Mutant(
        "broker/vhost/exchange_declare.py",
        "yield from vhost.deletions.name_free(EXCHANGE, name)",
        "yield from ()",
    ),
    "the answer does not wait for the last bindings": Mutant(
        _VHOST,
        "        yield from self.deletions.ended(entry)\n        return count",
        "        return count",
    ),
    "rows of dropped bindings stay": Mutant(
        _DELETIONS,
        "            self._metadata.delete_later(rows)",
        "            pass",
    ),
    "bindings that a crash has left stay": Mutant(
        "broker/node/bootstrap.py", "            vhost.forget_bindings(rows)", "            pass"
    ),
    "deletions find no room on a full disk": Mutant(
        _ENVIRONMENT,
        "if puts_bytes and not may_use_reserve:",
        "if not may_use_reserve and changes:",
    ),
    "the reserve is not for those who may use it": Mutant(
        _ENVIRONMENT, "if puts_bytes and not may_use_reserve:", "if puts_bytes:"
    ),
    "an environment without its map is used": Mutant(
        _ENVIRONMENT, "self._is_lost = isinstance(error, lmdb.Error)", "self._is_lost = False"
    ),
    "an environment that failed is used": Mutant(
        _ENVIRONMENT, "                    self._is_lost = True\n", "                    pass\n"
    ),
}
