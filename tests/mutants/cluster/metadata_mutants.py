"""Faults that metadata shared in etcd is likely to have."""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "a write is answered before other nodes have it": Mutant(
        "Nodes.settled",
        "min([applied, *(seen.state.applied for _, seen in self._others())])",
        "applied",
    ),
    "a node whose key is gone is not waited for": Mutant(
        "Nodes.deleted", "self._fading.append(...)", "pass"
    ),
    "a node that hangs is never taken for dead": Mutant("Nodes.suspects", "not late", "True"),
    "a node that has left is waited for": Mutant("Nodes.deleted", "not seen.state.has_left", ""),
    "a node serves long after it has found its key": Mutant(
        "Session._valid_to_s", "self._settings.valid_s", "1000.0"
    ),
    "a node serves before it has applied its key": Mutant(
        "Session.is_live", "self._joined_at <= self.replica.applied", ""
    ),
    "a node does not say how far it is": Mutant(
        "Session._advance", "transactor.recorded_applied < self._changed_at", "False"
    ),
    "the queues of a node that was taken for dead stay": Mutant(
        "Session.lost_own", "self._revoke(lease, self._following.load)", "self._following.load()"
    ),
    "numbers that are being taken are taken again": Mutant(
        "Session.take_numbers", "self._writes.is_busy(key)", "False"
    ),
    "a node of another data directory is replaced": Mutant(
        "refusal_of_key", "other.uuid != own.uuid", "False"
    ),
    "a copy of a data directory drives its node out": Mutant(
        "refusal_of_key", "other.directory != own.directory and (not other.has_left)", "False"
    ),
    "garbage is not collected": Mutant("Session._collect", "self._write_keys(...)", "pass"),
    "an etcd that went back is used": Mutant(
        "Session.loaded", "if self._gone_back: ...", "if False: ..."
    ),
    "an own key that is gone is not noticed": Mutant(
        "Transactor._not_done", "own is None or own.lease != self.lease", "False"
    ),
    "a lost answer counts as failure": Mutant(
        "Transactor._not_answered", "isinstance(...) and seq", "False"
    ),
    "a lost answer counts as success": Mutant(
        "Transactor._take_up", "unpacked_node(own).seq == seq", "True"
    ),
    "an etcd that went back is not noticed": Mutant(
        "Transactor._send", "answer.revision < applied", "False"
    ),
    "a write is made over what another node has written": Mutant(
        "Transactor._send", "*self._writes.expects(group)", ""
    ),
    "a conflict is answered before it can be seen": Mutant(
        "Writes._is_known", "replica.applied >= conflict.found", "True"
    ),
    "a conflict with a write on its way is answered at once": Mutant(
        "Session.write",
        "self._writes.answer_later(...)",
        "self._clock.call_later(0.0, made, error, 0)",
    ),
    "the end of a lease is answered before it can be seen": Mutant(
        "Transactor._refuse",
        "self._writes.answer_later(...)",
        "self._writes.refused(write)\nwrite.then(gone, 0)",
    ),
    "a write shares no fate with the one that it builds on": Mutant(
        "Writes.take", "any(...)", "False"
    ),
    "two writes of a key are in one transaction": Mutant(
        "Writes.take", "is_full or names & keys", "is_full"
    ),
    "a row on a deleted one is answered as made": Mutant(
        "Writes._gone", "parent not in live or live[parent].incarnation != incarnation", "False"
    ),
    "transactions are too long": Mutant("writes", "OPERATIONS_MAX - 2", "OPERATIONS_MAX + 2"),
    "a binding is found again by the next queue of its name": Mutant(
        "Replica._living", "found is None or found.incarnation != incarnation", "found is None"
    ),
    "what hangs on a deleted row stays": Mutant("Replica._change", "heappush(...)", "pass"),
    "a revision is applied again": Mutant("Replica.apply", "revision <= self.applied", "False"),
    "a load forgets what is gone": Mutant(
        "Replica.load", "dict.fromkeys(...)", "dict[str, None]()"
    ),
    "a compacted watch is begun again as it was": Mutant(
        "Following._follow", "self.load()", "self._follow()"
    ),
    "a silent watch is kept": Mutant(
        "Following._check_progress",
        "step == self._steps and self._follower.received_to < revision",
        "False",
    ),
    "a queue that is not durable has no lease": Mutant("RowWrites._puts", "lease", "0"),
    "a binding of such a queue has none": Mutant(
        "RowWrites._puts", "own_lease = binding_lease", "own_lease = 0"
    ),
    "names are not encoded": Mutant(
        "codec._quoted", "quote_from_bytes(_bytes(...), safe='')", "str(name)"
    ),
}
