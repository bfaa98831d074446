"""Faults to plant in the links between nodes."""

from __future__ import annotations

from mutants.planted import Mutant


def connection(old: str, new: str) -> Mutant:
    return Mutant("links/connection.py", old, new)


def peer(old: str, new: str) -> Mutant:
    return Mutant("links/peer.py", old, new)


def node(old: str, new: str) -> Mutant:
    return Mutant("links/node.py", old, new)


def handshake(old: str, new: str) -> Mutant:
    return Mutant("links/handshake.py", old, new)


MUTANTS = {
    "the end of a linked actor may be nobody's": peer(
        "sender: Ref) -> None:\n        _check_address(sender)\n", "sender: Ref) -> None:\n"
    ),
    "a reply may have any number": peer(" or type(message[0]) is not int:", ":"),
    "an earlier process of a linked node's name may still be there": Mutant(
        "links/node.py",
        "        return peer is not None and peer.node != node",
        "        return False",
    ),
    "a node that is out of reach is taken for past": Mutant(
        "links/node.py",
        "        return peer is not None and peer.node != node",
        "        return peer is None or peer.node != node",
    ),
    "this node takes itself for past": Mutant(
        "links/node.py",
        "            return node != self.runtime.node",
        "            return True",
    ),
    "the end of an actor overtakes its mail": connection(
        "waiting = [stream for stream in streams if stream.queue or stream.parts]", "waiting = []"
    ),
    "a signal waits for credit": connection(
        "        stream.waive()\n", "        stream.waived = 0\n"
    ),
    "a barrier is over with its first stream": connection(
        "            if not item.left:", "            if True:"
    ),
    "an exit overtakes the mail of its sender": peer(
        "self.connection.signal(self._streams.get(sender, {}).get(number), packed)",
        "self.connection.signal(None, packed)",
    ),
    "mail overtakes a large one of its pair": connection(
        "if bodies or size > RUN_BYTES or stream.queue or stream.credit.is_blocked or stream.parts:",
        "if bodies or size > RUN_BYTES:",
    ),
    "mail overtakes the rest of a large one": connection(
        "stream.credit.is_blocked or stream.parts:", "stream.credit.is_blocked:"
    ),
    "there is no credit": connection("        stream.credit.spend(len(run), size)\n", ""),
    "a run counts for no bytes": connection(
        "stream.credit.spend(len(run), size)", "stream.credit.spend(len(run), 0)"
    ),
    "what is taken in is not granted": connection(
        "            self._write(frame(self._mine, Kind.GRANT, stream.number, granted))\n",
        "            pass\n",
    ),
    "grants do not wait for the receiver": peer(
        "4 * to.cell.mail_count() <= stream.messages", "True"
    ),
    "a stream waits for ever when it is granted": connection(
        "        stream.credit.grant(*GRANTED.unpack(payload))\n        self._make_ready(stream)\n",
        "        stream.credit.grant(*GRANTED.unpack(payload))\n",
    ),
    "a large mail is written in one go": connection(
        "stream.next_chunk(self._limits.chunk_bytes)", "stream.next_chunk(2**20)"
    ),
    "small mail keeps streams that wait from their turn": connection(
        "while ready and (is_first or self._written_bytes < size_max):",
        "while ready and not self._written and (is_first or self._written_bytes < size_max):",
    ),
    "too many large mails are written at once": connection(
        "if self._large_count >= LARGE_MAILS_MAX:", "if False:"
    ),
    "streams that wait for a large one are forgotten": connection(
        "            waiting.is_ready = False\n", ""
    ),
    "a stream with mail under way is closed": connection(
        "            if stream.is_idle:", "            if not stream.queue:"
    ),
    "a closed stream is used again": peer("_inbox_of(ref).streams.pop(sender, None)", "pass"),
    "idle streams are kept": connection("            if stream.is_idle:", "            if False:"),
    "no heartbeats": connection(
        "        if not (self._has_written or self._written):", "        if False:"
    ),
    "silence is not noticed": connection(
        "return self._silent_ticks < self._silent_ticks_max", "return True"
    ),
    "another incarnation is read": Mutant(
        "links/frames.py", "if incarnation != self._incarnation:", "if False:"
    ),
    "addresses outlive their link": peer(
        "            self._runtime.turns.end_remote(ref, NOCONNECTION, LOST_CELL)\n",
        "            pass\n",
    ),
    "a lost link is no end for monitors set later": peer(
        "LOST_CELL)\n        self._hub", "DEAD_CELL)\n        self._hub"
    ),
    "a node that is down is not told": node(
        "        self._tell(NodeDown(peer.name, peer.theirs.incarnation, reason))\n", ""
    ),
    "a monitor is not sent": peer("            self.send_signal(MONITOR, number)\n", ""),
    "a link is not told the other node": peer(
        "        self.peer.send_signal(LINK, self.number, local.num)\n", "        pass\n"
    ),
    "an unlink is not told the other node": peer(
        "        self.peer.send_signal(UNLINK, self.number, local.num)\n", "        pass\n"
    ),
    "an end that crosses an unlink is told": peer(
        "if small_set.contains(ref.cell.links, sender):", "if True:"
    ),
    "a link to a dead actor is silent": peer(
        "            self.connection.signal(None, packed)\n\n    def _on_unlink",
        "            pass\n\n    def _on_unlink",
    ),
    "replies to calls of tasks are lost": peer(
        "            Answer(future).give(value)\n", "            pass\n"
    ),
    "who waits for mail to leave is not told of a broken link": peer(
        "        for call in notices.values():\n            call()\n", ""
    ),
    "both connections of two nodes that dial each other are used": node(
        "        if not is_dialler and self.name < name and self._is_dialling(node):",
        "        if False:",
    ),
    "a node that cannot be reached is not dialled again": node(
        "        dial.timer = self.runtime.clock.call_later(pause_s, self._dial, dial)\n", ""
    ),
    "nodes disagree who was parted": node(
        "return own <= peer.mine.parted_at and number <= peer.theirs.parted_at",
        "return own <= peer.mine.parted_at",
    ),
    "no proof is checked": handshake(
        "if not hmac.compare_digest(mac, self._mac(fields, not self._is_dialler)):", "if False:"
    ),
    "a proof is as good from either side": handshake(
        "side = _DIALLER if is_dialler else _LISTENER", "side = _DIALLER"
    ),
    "a proof is as good for another connection": handshake(
        "return hmac.digest(self._secret, side + first + second + fields",
        "return hmac.digest(self._secret, side + fields",
    ),
    "what is claimed is not proved": handshake(
        "side + first + second + fields", "side + first + second"
    ),
    "a node talks to itself": handshake(
        'if peer.rpartition("/")[0] == self._node.rpartition("/")[0]:', "if False:"
    ),
}
