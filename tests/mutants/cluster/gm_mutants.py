"""Faults to plant in guaranteed multicast."""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "the heir does not acknowledge for the dead": Mutant(
        "Member._merge", "publisher == self.me or publisher in view.aliases", "publisher == self.me"
    ),
    "everybody acknowledges before the lap is over": Mutant(
        "Member._merge", "publisher == self.me or publisher in view.aliases", "True"
    ),
    "a publisher does not see its own lap": Mutant(
        "Member._merge",
        "publisher == self.me or publisher in view.aliases",
        "publisher in view.aliases",
    ),
    "news is delivered and not passed on": Mutant(
        "Member._merge", "stream.ack(round_to) or new", "stream.ack(round_to)"
    ),
    "old news is passed on for ever": Mutant(
        "Member._merge", "if stream.ack(round_to) or new: ...", "stream.ack(round_to)\nif True: ..."
    ),
    "acknowledgements are not passed on": Mutant(
        "Member._merge", "if stream.ack(round_to) or new: ...", "stream.ack(round_to)\nif new: ..."
    ),
    "news is passed on and not delivered": Mutant(
        "Member._merge", "self._effects.append(...)", "pass"
    ),
    "what is known is delivered again": Mutant(
        "Member._merge", "Deliver(...)", "Deliver(publisher, bodies)"
    ),
    "an older record takes a view back": Mutant(
        "Member._switch", "group.stamp <= old.stamp", "group.stamp == old.stamp"
    ),
    "a frame of a newer view does not wait": Mutant(
        "Member._handle", "frame.stamp > view.stamp", "False"
    ),
    "a stale record is taken for a newer one": Mutant(
        "Member._refreshed", "group.stamp < self._needs", "group.stamp > self._needs"
    ),
    "frames overtake those that wait": Mutant(
        "Member.receive",
        "self._needs is not None or (self.view is None and (not isinstance(...)))",
        "self.view is None and (not isinstance(...))",
    ),
    "the frame that had to wait is forgotten": Mutant(
        "Member._handle", "self._waiting.appendleft(...)", ""
    ),
    "frames for a newcomer are dropped": Mutant(
        "Member.receive", "self._waiting.append(...)", "pass"
    ),
    "an older epoch is not fenced": Mutant(
        "Member._handle_neighbour",
        "frame.stamp.epoch < view.stamp.epoch or sender not in view.alive",
        "sender not in view.alive",
    ),
    "the dead and strangers are not fenced": Mutant(
        "Member._handle_neighbour",
        "frame.stamp.epoch < view.stamp.epoch or sender not in view.alive",
        "frame.stamp.epoch < view.stamp.epoch",
    ),
    "who is fenced is not told": Mutant("Member._handle_neighbour", "self._send(...)", "return"),
    "anybody may send activities": Mutant(
        "Member._handle_neighbour", "sender != view.left", "False"
    ),
    "the catch-up is not waited for": Mutant(
        "Member._handle_neighbour", "self._is_synced", "self.phase is Phase.READY"
    ),
    "no catch-up for a new right neighbour": Mutant(
        "Member._switch_right_neighbour",
        "if self.phase is Phase.READY: ...\nelse: self._send(...)",
        "if self.phase is not Phase.READY: self._send(view.right, Check(view.stamp))",
    ),
    "no catch-up when it is asked for": Mutant(
        "Member._handle_ask",
        "if frame.waiting is not None or self._pushed < frame.stamp: ...",
        "return",
    ),
    "a newcomer does not pass its state on": Mutant(
        "Member._become_ready", "if self.view.right != self.me: ...", ""
    ),
    "a new left neighbour is not asked": Mutant(
        "Member._switch", "self._send(view.left, Ask(...))", "pass"
    ),
    "a new left neighbour counts as known": Mutant("Member._switch", "self._is_synced = False", ""),
    "a ring without a state waits for ever": Mutant(
        "Member._handle_ask", "self._become_ready()", "return"
    ),
    "a question ends at the first who has no state": Mutant(
        "Member._handle_ask", "self._send(view.left, Ask(...))", "return"
    ),
    "a state that was taken over is delivered": Mutant(
        "Member._adopt",
        "stream.start(...)",
        "stream.start(...)\nself._effects.append(Deliver(publisher, bodies))",
    ),
    "a newcomer has joined before it has a state": Mutant(
        "Member._join", "Phase.WAITING", "Phase.READY"
    ),
    "the dead are erased before their mark is back": Mutant(
        "Member._own_acked", "self._marks[name] <= acked", "self._marks[name] <= acked + 1"
    ),
    "the dead are erased at once": Mutant(
        "Member._mark_inherited",
        "fresh = ...",
        "self._erase(self.view.aliases)\nfresh = frozenset[MemberId]()",
    ),
    "the dead are never erased": Mutant("Member._erase", "self._transact(...)", "pass"),
    "the mark overtakes the dead in a catch-up": Mutant(
        "Member._push", "name in view.alive", "name not in view.alive"
    ),
    "deaths are not reported": Mutant(
        "Member._switch", "MembersChanged(...)", "MembersChanged(births, frozenset())"
    ),
    "births are not reported": Mutant(
        "Member._switch", "MembersChanged(...)", "MembersChanged(frozenset(), deaths)"
    ),
    "the state of the dead is kept": Mutant(
        "Member._apply_membership", "del self._streams[name]", ""
    ),
    "the end of a neighbour is ignored": Mutant(
        "Member._handle_down", "self._transact(MarkDead(peer, by=self.me), self._switch)", "return"
    ),
    "a right neighbour does not hear of the view": Mutant(
        "Member._switch_right_neighbour", "if view.right != self.me: ...", ""
    ),
    "neighbours are not monitored": Mutant(
        "Member._watch_neighbours", "peer != self.me and peer not in self._monitored", "False"
    ),
    "confirms come with the broadcast": Mutant(
        "Member.confirmed_broadcast",
        "self._outbox.await_confirm(...)",
        "self._effects.append(Confirmed([tag]))",
    ),
    "confirms are for the message before": Mutant(
        "Member.confirmed_broadcast", "own.last", "own.last - 1"
    ),
    "who is alone at last confirms nothing": Mutant(
        "Member._finish_rounds", "self._own_acked()", ""
    ),
    "who leaves does not wait": Mutant(
        "Member.leave", "self._flush()\nself._stop_if_drained()", "self._stop(reason)"
    ),
    "who leaves admits newcomers": Mutant(
        "Member._admit",
        "self.phase is not Phase.READY or self.is_leaving",
        "self.phase is not Phase.READY",
    ),
    "who has no state admits newcomers": Mutant(
        "Member._admit", "self.phase is not Phase.READY or self.is_leaving", "self.is_leaving"
    ),
    "blocked publishers stay so": Mutant(
        "Outbox.flow",
        "under_way_bytes > self._pending_bytes // 2",
        "under_way_bytes or under_way_bytes > self._pending_bytes // 2",
    ),
    "who leaves keeps news of others": Mutant("Member._stop_if_drained", "self._flush()", ""),
    "news of others wait for more": Mutant("Member._merge", "bool(new)", "False"),
    "news are not sent by the timer": Mutant("Member._note", "self._is_flush_due = True", "return"),
    "a new right neighbour is sent old news": Mutant(
        "Member._push",
        "for stream in streams: ...\nself._news.clear()",
        "for stream in streams: pass",
    ),
    "a second catch-up is without what has been round since the first": Mutant(
        "Member._push", "self._pushed != NO_STAMP", "False"
    ),
    "the mark overtakes the dead in a frame": Mutant(
        "News.take", "stream.publisher in view.alive", "stream.publisher not in view.alive"
    ),
    "a publisher is sent its own messages": Mutant(
        "News._entries", "stream.publisher == receiver", "False"
    ),
    "a publisher does not hear of its lap": Mutant(
        "News._entries", "if bodies: ...", "if False: ..."
    ),
    "a part of the news is acknowledged before it has come": Mutant(
        "News._entries", "min(...)", "stream.acked"
    ),
    "a gap is not seen": Mutant("Stream.add", "known < 0", "False"),
    "the wrong dead are inherited": Mutant(
        "_dead_before", "reversed(...)", "group.entries[place + 1:] + group.entries[:place]"
    ),
    "left is right": Mutant("View.__init__", "place - 1", "(place + 1) % len(alive)"),
    "a buried newcomer comes back": Mutant(
        "Newcomer._may_have_died", "group.version >= since.version + _VERSIONS_OF_A_LIFE", "False"
    ),
    "a newcomer buries whom it cannot reach": Mutant(
        "Member._handle_down", "reason == NOCONNECTION", "reason is None"
    ),
    "a member whose node was started again is only out of reach": Mutant(
        "node_links", "node.is_past(...)", "False"
    ),
    "a stray message ends a member": Mutant(
        "GmActor.handle_cast", "kind is Unreadable", "kind is not Unreadable"
    ),
    "a frame that cannot be read is dropped": Mutant(
        "GmActor.handle_cast", "kind is Unreadable", "False"
    ),
    "a newcomer is put in the wrong place": Mutant(
        "Add.apply", "entries.index(...) + 1", "entries.index(...)"
    ),
    "the dead leave the record at once": Mutant(
        "MarkDead.apply", "Entry(...)", "Entry(self.member, True)"
    ),
    "the dead declare others dead": Mutant("MarkDead.apply", "if self.by is not None: ...", ""),
    "a version is not counted": Mutant("Group.replaced", "self.version + 1", "self.version"),
    "a conflict is taken for success": Mutant(
        "Transactor._written", "self._answered(...)", "then(transaction.apply(None))"
    ),
}
