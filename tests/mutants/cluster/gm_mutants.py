"""Faults to plant in guaranteed multicast."""

from __future__ import annotations

from mutants.planted import Mutant


def member(old: str, new: str) -> Mutant:
    return Mutant("ring/member.py", old, new)


def record(old: str, new: str) -> Mutant:
    return Mutant("records/transactions.py", old, new)


MUTANTS = {
    "the heir does not acknowledge for the dead": member(
        "if publisher == self.me or publisher in view.aliases:", "if publisher == self.me:"
    ),
    "everybody acknowledges before the lap is over": member(
        "if publisher == self.me or publisher in view.aliases:", "if True:"
    ),
    "a publisher does not see its own lap": member(
        "if publisher == self.me or publisher in view.aliases:", "if publisher in view.aliases:"
    ),
    "news is delivered and not passed on": member(
        "            if stream.ack(round_to) or new:", "            if stream.ack(round_to):"
    ),
    "old news is passed on for ever": member(
        "            if stream.ack(round_to) or new:",
        "            stream.ack(round_to)\n            if True:",
    ),
    "acknowledgements are not passed on": member(
        "            if stream.ack(round_to) or new:",
        "            stream.ack(round_to)\n            if new:",
    ),
    "news is passed on and not delivered": member(
        "                self._effects.append(Deliver(publisher, new))\n", "                pass\n"
    ),
    "what is known is delivered again": member(
        "self._effects.append(Deliver(publisher, new))",
        "self._effects.append(Deliver(publisher, bodies))",
    ),
    "an older record takes a view back": member(
        "group.stamp <= old.stamp", "group.stamp == old.stamp"
    ),
    "a frame of a newer view does not wait": member(
        "        elif frame.stamp > view.stamp:", "        elif False:"
    ),
    "a stale record is taken for a newer one": member(
        "group.stamp < self._needs:", "group.stamp > self._needs:"
    ),
    "frames overtake those that wait": member(
        "        if self._needs is not None or (self.view",
        "        if (self.view",
    ),
    "the frame that had to wait is forgotten": member(
        "            self._waiting.appendleft((sender, frame, None))\n", ""
    ),
    "frames for a newcomer are dropped": member(
        "            self._waiting.append((sender, frame, None))\n", "            pass\n"
    ),
    "an older epoch is not fenced": member("frame.stamp.epoch < view.stamp.epoch or ", ""),
    "the dead and strangers are not fenced": member(" or sender not in view.alive:", ":"),
    "who is fenced is not told": member(
        "            self._send(sender, Check(view.stamp))  # fenced: let it find out\n",
        "            return\n",
    ),
    "anybody may send activities": member(
        "        elif sender != view.left:", "        elif False:"
    ),
    "the catch-up is not waited for": member(
        " is Activity and self._is_synced:", " is Activity and self.phase is Phase.READY:"
    ),
    "no catch-up for a new right neighbour": member(
        "        if self.phase is Phase.READY:\n            self._push()\n        else:\n",
        "        if self.phase is not Phase.READY:\n",
    ),
    "no catch-up when it is asked for": member(
        "            if frame.waiting is not None or self._pushed < frame.stamp:\n                self._push()\n",
        "            return\n",
    ),
    "a newcomer does not pass its state on": member(
        "        if self.view.right != self.me:\n            self._push()\n", ""
    ),
    "a new left neighbour is not asked": member(
        "            self._send(view.left, Ask(view.stamp, waiting))\n", "            pass\n"
    ),
    "a new left neighbour counts as known": member(
        "            self._is_synced = False\n            self._parts = None\n            if old",
        "            self._parts = None\n            if old",
    ),
    "a ring without a state waits for ever": member(
        "                self._become_ready()  # nobody in the ring has a state\n",
        "                return\n",
    ),
    "a question ends at the first who has no state": member(
        "                self._send(view.left, Ask(view.stamp, frame.waiting))\n",
        "                return\n",
    ),
    "a state that was taken over is delivered": member(
        "                stream.start(first, bodies, acked)\n",
        "                stream.start(first, bodies, acked)\n"
        "                self._effects.append(Deliver(publisher, bodies))\n",
    ),
    "a newcomer has joined before it has a state": member(
        "            self.phase = Phase.WAITING\n            self._switch(group)",
        "            self.phase = Phase.READY\n            self._switch(group)",
    ),
    "the dead are erased before their mark is back": member(
        "self._marks[name] <= acked", "self._marks[name] <= acked + 1"
    ),
    "the dead are erased at once": member(
        "        fresh = self.view.aliases - self._marks.keys() - self._erasing\n",
        "        self._erase(self.view.aliases)\n        fresh = frozenset[MemberId]()\n",
    ),
    "the dead are never erased": member(
        "            self._transact(Erase(fresh, self.me), self._switch)\n", "            pass\n"
    ),
    "the mark overtakes the dead in a catch-up": member(
        "(name in view.alive, name)", "(name not in view.alive, name)"
    ),
    "deaths are not reported": member(
        "MembersChanged(births, deaths)", "MembersChanged(births, frozenset())"
    ),
    "births are not reported": member(
        "MembersChanged(births, deaths)", "MembersChanged(frozenset(), deaths)"
    ),
    "the state of the dead is kept": member("            del self._streams[name]\n", ""),
    "the end of a neighbour is ignored": member(
        "            self._transact(MarkDead(peer, by=self.me), self._switch)\n",
        "            return\n",
    ),
    "a right neighbour does not hear of the view": member(
        "            if view.right != self.me:\n                self._send(view.right, Check(view.stamp))\n            return",
        "            return",
    ),
    "neighbours are not monitored": member(
        "            if peer != self.me and peer not in self._monitored:", "            if False:"
    ),
    "confirms come with the broadcast": member(
        "            self._outbox.await_confirm(own.last, tag)\n",
        "            self._effects.append(Confirmed([tag]))\n",
    ),
    "confirms are for the message before": member(
        "await_confirm(own.last, tag)", "await_confirm(own.last - 1, tag)"
    ),
    "who is alone at last confirms nothing": member(
        "            self._become_ready()\n        self._own_acked()\n",
        "            self._become_ready()\n",
    ),
    "who leaves does not wait": member(
        "            self._flush()\n            self._stop_if_drained()\n        else:",
        "            self._stop(reason)\n        else:",
    ),
    "who leaves admits newcomers": member(
        "if self.phase is not Phase.READY or self.is_leaving:\n            self._send(newcomer",
        "if self.phase is not Phase.READY:\n            self._send(newcomer",
    ),
    "who has no state admits newcomers": member(
        "if self.phase is not Phase.READY or self.is_leaving:\n            self._send(newcomer",
        "if self.is_leaving:\n            self._send(newcomer",
    ),
    "blocked publishers stay so": Mutant(
        "ring/outbox.py",
        "        if self.is_blocked:\n            if under_way_bytes",
        "        if self.is_blocked:\n            if under_way_bytes or under_way_bytes",
    ),
    "who leaves keeps news of others": member("            self._flush()  # news of others\n", ""),
    "news of others wait for more": member("is_urgent=bool(new)", "is_urgent=False"),
    "news are not sent by the timer": member(
        "            self._is_flush_due = True\n", "            return\n"
    ),
    "a new right neighbour is sent old news": member(
        "            stream.take_unsent()\n        self._news.clear()\n", "            pass\n"
    ),
    "a second catch-up is without what has been round since the first": member(
        "        if self._pushed != NO_STAMP:\n", "        if False:\n"
    ),
    "the mark overtakes the dead in a frame": Mutant(
        "ring/news.py", "stream.publisher in view.alive)", "stream.publisher not in view.alive)"
    ),
    "a publisher is sent its own messages": Mutant(
        "ring/news.py", "        if stream.publisher == receiver:", "        if False:"
    ),
    "a publisher does not hear of its lap": Mutant(
        "ring/news.py", "            if bodies:\n", "            if False:\n"
    ),
    "a part of the news is acknowledged before it has come": Mutant(
        "ring/news.py", "min(stream.acked, first + end - 1)", "stream.acked"
    ),
    "a gap is not seen": Mutant("ring/streams.py", "        if known < 0:", "        if False:"),
    "the wrong dead are inherited": Mutant(
        "ring/view.py",
        "reversed(group.entries[place + 1 :] + group.entries[:place])",
        "group.entries[place + 1 :] + group.entries[:place]",
    ),
    "left is right": Mutant(
        "ring/view.py",
        "self.left = alive[place - 1]",
        "self.left = alive[(place + 1) % len(alive)]",
    ),
    "a buried newcomer comes back": Mutant(
        "ring/newcomer.py",
        "        return group.version >= since.version + _VERSIONS_OF_A_LIFE",
        "        return False",
    ),
    "a newcomer buries whom it cannot reach": member(
        "            if reason == NOCONNECTION:\n                self._newcomer",
        "            if reason is None:\n                self._newcomer",
    ),
    "a member whose node was started again is only out of reach": Mutant(
        "node_links.py", "        if node.is_past(member.node):", "        if False:"
    ),
    "a stray message ends a member": Mutant(
        "actor.py", "        elif kind is Unreadable:", "        elif kind is not Unreadable:"
    ),
    "a frame that cannot be read is dropped": Mutant(
        "actor.py", "        elif kind is Unreadable:", "        elif False:"
    ),
    "a newcomer is put in the wrong place": record(
        "entries.index(Entry(self.left, True)) + 1", "entries.index(Entry(self.left, True))"
    ),
    "the dead leave the record at once": record(
        "dead = Entry(self.member, False)", "dead = Entry(self.member, True)"
    ),
    "the dead declare others dead": record(
        "        if self.by is not None:\n            group = _listing(group, self.by)\n", ""
    ),
    "a version is not counted": Mutant(
        "records/group.py", "self.version + 1, entries", "self.version, entries"
    ),
    "a conflict is taken for success": Mutant(
        "records/transactor.py",
        "            self._answered(transaction, then, answer)\n",
        "            then(transaction.apply(None))\n",
    ),
}
