"""Faults to plant in the replicas of a mirrored queue, and in their messages."""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "confirms do not wait for a change under way": Mutant(
        "RecordChanges.waited_for", "found.update(each.in_sync)", "pass"
    ),
    "confirms wait for the fastest replica": Mutant(
        "Master._confirm",
        "min(...)",
        "max((self._durable_no.get(each, 0) for each in waited_for))",
    ),
    "too few in sync confirm": Mutant(
        "Master._confirm", "len(self.record.in_sync) >= self._in_sync_min", "True"
    ),
    "a mirror comes in sync that lacks what was confirmed": Mutant(
        "Master._change", "self._durable_no[each] >= self._agreed_no", "True"
    ),
    "what was handed out does not count for a mirror that joins": Mutant(
        "Master._change",
        "self._durable_no[each] >= self._agreed_no",
        "self._durable_no[each] >= self.confirmed_no",
    ),
    "a mirror that joins is not waited for": Mutant(
        "Master._confirm",
        "self._changes.waited_for() | self._joining",
        "self._changes.waited_for()",
    ),
    "a mirror that joins is waited for without end": Mutant(
        "Master.check_lag", "self._joining -= late", ""
    ),
    "a late mirror comes back at once": Mutant(
        "Master._note_durable", "no >= self._late.get(replica, 0)", "True"
    ),
    "late mirrors stay": Mutant("Master.check_lag", "self._late.update(...)", ""),
    "the dead are waited for": Mutant(
        "Master._change",
        "record.shrunk(frozenset(record.in_sync) - self._living | self._late.keys())",
        "record.shrunk(frozenset(self._late))",
    ),
    "the master does not wait for its disk": Mutant(
        "Master._give",
        "self._content.sync(...)",
        "self._note_durable(self.me, no)",
    ),
    "the master takes a sync of the mirror it was": Mutant(
        "Master.synced", "point[:2] == (self.epoch, 0)", "True"
    ),
    "the master takes what was durable in an older epoch": Mutant(
        "Master.receive", "message.epoch < self.epoch", "False"
    ),
    "a deposed master goes on": Mutant("Master.seen", "stored.record.epoch > self.epoch", "False"),
    "a promotion keeps the epoch": Mutant("QueueRecord.promoted", "self.epoch + 1", "self.epoch"),
    "a read settles an unknown change": Mutant(
        "RecordChanges.seen",
        "stored.revision <= self._revision",
        "stored.revision < self._revision",
    ),
    "an unanswered change is forgotten": Mutant(
        "RecordChanges.answered",
        "self.is_writing = False",
        "self.is_writing = False\nself._possible.clear()",
    ),
    "an unknown change is not tried again": Mutant(
        "Master._change", "wanted != record or not changes.is_certain", "wanted != record"
    ),
    "a mirror acknowledges before it is durable": Mutant(
        "Mirror._sync",
        "self._content.sync(...)",
        "self._outside.send(self.record.master, Durable(self._epoch, self.last_no))",
    ),
    "a mirror acknowledges while it copies": Mutant(
        "Mirror._apply", "self.phase is Phase.COMPLETE", "True"
    ),
    "a mirror takes an older sync for one of all copies": Mutant(
        "Mirror.synced",
        "self.phase is Phase.COMPLETE and point[:2] == (self._epoch, self._request)",
        "self.phase is Phase.COMPLETE",
    ),
    "a mirror keeps what its master does not have": Mutant(
        "Mirror._take_state", "self._content.remove(...)", ""
    ),
    "a mirror takes messages of an older epoch": Mutant(
        "Mirror.receive", "message.epoch < self._epoch", "False"
    ),
    "a mirror takes instructions of an older epoch": Mutant(
        "Mirror.instruct",
        "self.phase is Phase.ENDED or instruction.epoch < self._epoch",
        "self.phase is Phase.ENDED",
    ),
    "a missed instruction is not noticed": Mutant(
        "Mirror.instruct", "instruction.no == self.last_no + 1", "instruction.no > self.last_no"
    ),
    "an instruction is applied twice": Mutant(
        "Mirror.instruct",
        "instruction.no == self.last_no + 1",
        "instruction.no <= self.last_no + 1",
    ),
    "a mirror that was away takes an answer from before": Mutant(
        "Mirror.rejoined", "self.phase is not Phase.ENDED", "self.phase is not Phase.ASKING"
    ),
    "a mirror that was away does not ask": Mutant("Mirror.rejoined", "self._ask()", "pass"),
    "a removed message comes back with its copy": Mutant(
        "Mirror._apply", "self._lacks_no_more(instruction.seqs)", ""
    ),
    "a late piece is taken for the next": Mutant(
        "Mirror._take_copies", "copies.piece != self._piece", "False"
    ),
    "anybody becomes master": Mutant(
        "Mirror._is_next", "[each for each in record.in_sync if each in living]", "sorted(living)"
    ),
    "a mirror that asks to replace a new master goes on in its epoch": Mutant(
        "Mirror.seen", "self._begin()", ""
    ),
    "a mirror keeps its own mark of what was handed out": Mutant(
        "Mirror._take_state",
        "max(state.handed_out, self._handed_out)",
        "max(state.handed_out, self._content.handed_out)",
    ),
    "mirrors do not hear what is handed out": Mutant(
        "Mirror._apply", "self._hand_out(instruction.below)", "pass"
    ),
    "mirrors take what went straight to consumers for new": Mutant(
        "Mirror._publish", "publish.is_handed_out", "False"
    ),
    "a master does not note what went straight to consumers": Mutant(
        "Master.publish", "if is_handed_out: ...", ""
    ),
    "messages are handed out before all in-sync replicas know": Mutant(
        "Master._confirm", "self._to_hand_out[0][0] <= no", "True"
    ),
    "nobody starts again as master": Mutant(
        "Mirror._is_next",
        "[by_node[each.node] for each in record.in_sync if each.node in by_node]",
        "[]",
    ),
    "a promotion is not tried again": Mutant("Mirror.written", "self._is_writing = False", ""),
    "seqs of two epochs are the same": Mutant("first_seq_of", "epoch << EPOCH_SHIFT", "0"),
    "a mirror goes on behind instructions that it missed while it asked": Mutant(
        "Mirror._follows", "self._first_no > no + 1", "False"
    ),
    "a mirror forgets what was handed out while it asked": Mutant(
        "Mirror._take_state", "max(state.handed_out, self._handed_out)", "state.handed_out"
    ),
    "a mirror removes what the master has published since it looked": Mutant(
        "Master._state", "end = self.next_seq", "pass"
    ),
    "a mirror takes a part of the live seqs for all": Mutant(
        "Mirror._take_state", "state.is_last", "True"
    ),
    "a mirror asks for all live seqs again and again": Mutant(
        "Mirror._take_state", "self._asked = state.end", ""
    ),
    "a mirror takes a part of a piece for all": Mutant(
        "Mirror._take_copies", "between(self._fetching, 0, copies.below)", "self._fetching"
    ),
    "a message that was copied is added again": Mutant(
        "Mirror._publish", "without(run, content.live.within(first, end))", "run"
    ),
    "a message that has come is still missing": Mutant(
        "Mirror._publish", "self._lacks_no_more(run)", ""
    ),
    "a master reads for each question of a mirror": Mutant(
        "Master._read", "reading not in self._reading", "True"
    ),
    "a master without seqs goes on": Mutant(
        "Master._change", "self.next_seq + SPARE_SEQS > first_seq_of(self.epoch + 1)", "False"
    ),
}

QUEUES = {
    "a message that is removed stays in the mirror's queue": Mutant(
        "MirrorContent.resume", "self.queue.ack(...)", ""
    ),
    "a mirror forgets what it has taken": Mutant("MirrorContent.resume", "taken.add(...)", ""),
    "what a mirror has taken is not put back": Mutant(
        "MirrorContent.put_back", "self.queue.requeue(...)", ""
    ),
    "a new master does not know what was handed out": Mutant(
        "MirrorContent.put_back", "self.queue.set_next_deliver(...)", ""
    ),
    "a mirror does not wait for acks before it adds a message again": Mutant(
        "MirrorContent.is_settled", "not self._unsettled", "True"
    ),
    "a mirror knows some of its messages after a start": Mutant(
        "MirrorContent.load", "not found.pending and len(found.seqs) < SLICE", "True"
    ),
    "a mirror acknowledges what its disk has not": Mutant(
        "MirrorContent._added", "is_safe", "True"
    ),
    "a master acknowledges what its disk has not": Mutant(
        "MasterContent.publish", "not is_safe", "False"
    ),
    "a point does not wait for earlier messages": Mutant(
        "SyncPoints._tell", "lowest[0][0] >= self._waiting[0][0]", "True"
    ),
    "a read that finds nothing leads nowhere": Mutant(
        "MasterContent.resume", "wanted.below = reads[0][0][-1][1]", "pass"
    ),
    "a part of a read is taken for all": Mutant(
        "MasterContent.resume", "wanted.is_pending or wanted.is_full", "False"
    ),
    "messages are handed out that the mirrors do not know of": Mutant(
        "MirroredQueue.fetch", "entry[SEQ] < below", "True"
    ),
    "a fetch does not ask for what it may hand out": Mutant(
        "MirroredQueue.fetch", "self._ask_deliverable(head[SEQ], limit)", "pass"
    ),
    "an ack of a ready message removes it from the mirrors": Mutant(
        "MirroredQueue.ack", "seq in self._unacked", "True"
    ),
    "a purge removes unacked messages from the mirrors": Mutant(
        "MirroredQueue.purge", "without(live, runs_of(sorted(self._unacked)))", "live"
    ),
    "dropped messages stay in the mirrors": Mutant(
        "MirroredQueue.dropwhile", "self._gone(...)", ""
    ),
    "a batch is safe before its mirrors have it": Mutant(
        "MirroredQueue._publish", "master.confirmed_no >= no", "True"
    ),
    "an inserted message goes before older ones of Q1": Mutant(
        "VariableQueue._add_to_tail", "merge(self.q1, behind)", "self.q1.extendleft(behind)"
    ),
    "messages behind the head of Q2 go to delta": Mutant(
        "VariableQueue._add_at_places", "self.q1 or paged.q2", "self.q1"
    ),
    "transients of a low epoch are taken for those of before the start": Mutant(
        "VariableQueue._add_from", "self.paged.transient_threshold = seq", "pass"
    ),
    "a start's delta reaches over later messages": Mutant(
        "VariableQueue.skip_to", "self.paged.delta = delta._replace(end=seq)", "pass"
    ),
    "rows of a flush are out of order": Mutant(
        "PendingQueue.take_rows", "not self.is_sorted", "False"
    ),
    "rows of a memtable are out of order": Mutant(
        "Memtables.published", "rows[0][0] < terms.next_seq", "False"
    ),
    "unwritten rows are out of order": Mutant(
        "GroupCommit.unwritten_rows", "pending.is_sorted and is_behind", "True"
    ),
    "rows that are read are out of order": Mutant(
        "RowReader._merged", "new[0][0] > rows[-1][0]", "True"
    ),
    "a start counts from the checkpoint": Mutant(
        "MsgStore._new_client", "[recovered.next_no, *known]", "[recovered.next_no]"
    ),
}
