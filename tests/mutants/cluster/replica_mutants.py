"""Faults to plant in the replicas of a mirrored queue."""

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
    "a new master notes no epoch": Mutant(
        "Master.__init__",
        "continued(content.history, self.epoch, content.next_seq)",
        "content.history",
    ),
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
        "Mirror._take_state", "content.remove(...)", ""
    ),
    "lengths are compared, not epochs": Mutant(
        "Mirror._take_state", "parting(...)", "min(content.next_seq, state.next_seq)"
    ),
    "a mirror does not take over the history": Mutant(
        "Mirror._take_state",
        "content.adopt(state.history, state.next_seq, state.handed_out)",
        "content.adopt(content.history, state.next_seq, state.handed_out)",
    ),
    "instructions are applied before the state is known": Mutant(
        "Mirror.instruct", "self.phase is Phase.ASKING", "False"
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
        "Mirror._apply", "instruction.no != self.last_no + 1", "False"
    ),
    "an instruction is applied twice": Mutant(
        "Mirror._apply", "instruction.no <= self.last_no", "False"
    ),
    "a mirror that was away takes an answer from before": Mutant(
        "Mirror.rejoined", "self.phase is not Phase.ENDED", "self.phase is not Phase.ASKING"
    ),
    "a mirror that was away does not ask": Mutant("Mirror.rejoined", "self._ask()", "pass"),
    "a removed message comes back with its copy": Mutant(
        "Mirror._remove", "without(self._fetching, instruction.seqs)", "self._fetching"
    ),
    "a late piece is taken for the next": Mutant(
        "Mirror._take_copies", "copies.piece != self._piece", "False"
    ),
    "anybody becomes master": Mutant(
        "Mirror._is_next", "[each for each in record.in_sync if each in living]", "sorted(living)"
    ),
    "a mirror that asks to replace a new master goes on in its epoch": Mutant(
        "Mirror.seen", "self.phase = Phase.ASKING", ""
    ),
    "a mirror keeps its own mark of what was handed out": Mutant(
        "Mirror._take_state",
        "content.adopt(state.history, state.next_seq, state.handed_out)",
        "content.adopt(state.history, state.next_seq, content.handed_out)",
    ),
    "mirrors do not hear what is handed out": Mutant(
        "Mirror._apply", "self._content.hand_out(instruction.below)", "pass"
    ),
    "mirrors take what went straight to consumers for new": Mutant(
        "Mirror._apply", "instruction.is_handed_out", "False"
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
    "the histories part where the longer one ends": Mutant(
        "parting", "min(ends[last], other_ends[last])", "max(ends[last], other_ends[last])"
    ),
}
