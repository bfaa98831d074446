"""Faults that metadata shared in etcd is likely to have."""

from __future__ import annotations

from mutants.planted import Mutant


def session(old: str, new: str) -> Mutant:
    return Mutant("session.py", old, new)


def transactor(old: str, new: str) -> Mutant:
    return Mutant("transactor.py", old, new)


def writes(old: str, new: str) -> Mutant:
    return Mutant("writes.py", old, new)


def nodes(old: str, new: str) -> Mutant:
    return Mutant("nodes.py", old, new)


def replica(old: str, new: str) -> Mutant:
    return Mutant("replica.py", old, new)


def following(old: str, new: str) -> Mutant:
    return Mutant("following.py", old, new)


MUTANTS = {
    "a write is answered before other nodes have it": nodes(
        "floor = min([applied, *(seen.state.applied for _, seen in self._others())])",
        "floor = applied",
    ),
    "a node whose key is gone is not waited for": nodes(
        "            self._fading.append(_Fading(seen.state.applied, now_s + self._valid_s))\n",
        "            pass\n",
    ),
    "a node that hangs is never taken for dead": nodes(
        "        if not late:\n", "        if True:\n"
    ),
    "a node that has left is waited for": nodes("not seen.state.has_left and key", "key"),
    "a node serves long after it has found its key": session(
        "        return self._renewed_s + self._settings.valid_s\n",
        "        return self._renewed_s + 1000.0\n",
    ),
    "a node serves before it has applied its key": session(
        "            and self._joined_at <= self.replica.applied\n", ""
    ),
    "a node does not say how far it is": session(
        "transactor.told_applied < self._changed_at", "False"
    ),
    "the queues of a node that was taken for dead stay": session(
        "            self._revoke(lease, self._following.load)",
        "            self._following.load()",
    ),
    "numbers that are being taken are taken again": session(
        "        if self._writes.is_busy(key):  # this node", "        if False:  # this node"
    ),
    "a node of another data directory is replaced": session(
        "        if uuid != self._uuid:", "        if False:"
    ),
    "garbage is not collected": session(
        "            self._write_keys(garbage, collected)\n", "            pass\n"
    ),
    "an etcd that went back is used": session(
        "        if self._gone_back:\n", "        if False:\n"
    ),
    "an own key that is gone is not noticed": transactor(
        "            if own is None or own.lease != self.lease:", "            if False:"
    ),
    "a lost answer counts as failure": transactor(
        "        if isinstance(error, UnknownOutcomeError) and seq:", "        if False:"
    ),
    "a lost answer counts as success": transactor(
        "            if unpacked_node(own).seq == seq:", "            if True:"
    ),
    "an etcd that went back is not noticed": transactor("answer.revision < applied:", "False:"),
    "a write is made over what another node has written": transactor(
        "self.revision), *self._writes.expects(group)]", "self.revision)]"
    ),
    "a conflict is answered before it can be seen": writes(
        "            return replica.applied >= conflict.found\n", "            return True\n"
    ),
    "a conflict with a write on its way is answered at once": session(
        "            self._writes.answer_later(Write([], now_s, made), error)\n",
        "            self._clock.call_later(0.0, made, error, 0)\n",
    ),
    "the end of a lease is answered before it can be seen": transactor(
        "            self._writes.answer_later(write, gone)\n",
        "            self._writes.refused(write)\n            write.then(gone, 0)\n",
    ),
    "a write shares no fate with the one that it builds on": writes(
        "if any(each is not None and each.has_failed for each in before):", "if False:"
    ),
    "two writes of a key are in one transaction": writes(
        "if group and (is_full or names & keys):", "if group and is_full:"
    ),
    "a row on a deleted one is answered as made": writes(
        "                if parent not in live or live[parent].incarnation != incarnation:",
        "                if False:",
    ),
    "transactions are too long": writes("OPERATIONS_MAX - 2", "OPERATIONS_MAX + 2"),
    "a binding is found again by the next queue of its name": replica(
        "            if found is None or found.incarnation != incarnation:",
        "            if found is None:",
    ),
    "what hangs on a deleted row stays": replica(
        "                    heappush(open_, (rank(child), child))\n", "                    pass\n"
    ),
    "a revision is applied again": replica(
        "        if revision <= self.applied:", "        if False:"
    ),
    "a load forgets what is gone": replica("dict.fromkeys(self.entries)", "dict[str, None]()"),
    "a compacted watch is begun again as it was": following(
        "                self.load()\n            elif",
        "                self._follow()\n            elif",
    ),
    "a silent watch is kept": following(
        "        if step == self._steps and self._follower.told_to < revision:", "        if False:"
    ),
    "a queue that is not durable has no lease": Mutant(
        "row_writes.py", "                own_lease = lease\n", "                own_lease = 0\n"
    ),
    "a binding of such a queue has none": Mutant(
        "row_writes.py", "own_lease = binding_lease", "own_lease = 0"
    ),
    "names are not encoded": Mutant(
        "codec.py", 'return quote_from_bytes(_bytes(str(name)), safe="")', "return str(name)"
    ),
}
