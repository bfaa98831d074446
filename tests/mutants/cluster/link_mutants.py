"""Faults to plant in the links between nodes, and between a process and its parent."""

from __future__ import annotations

from mutants.planted import Mutant


def connection(old: str, new: str) -> Mutant:
    return Mutant("links/connection.py", old, new)


def peer(old: str, new: str) -> Mutant:
    return Mutant("links/peer.py", old, new)


def signals(old: str, new: str) -> Mutant:
    return Mutant("links/signals.py", old, new)


def node(old: str, new: str) -> Mutant:
    return Mutant("links/node.py", old, new)


def handshake(old: str, new: str) -> Mutant:
    return Mutant("links/handshake.py", old, new)


def process(old: str, new: str) -> Mutant:
    return Mutant("processes/link.py", old, new)


def remote(old: str, new: str) -> Mutant:
    return Mutant("runtime/remote.py", old, new)


MUTANTS = {
    "the end of a linked actor may be nobody's": signals(
        "if _forget_link(ref, _checked(sender)):", "if _forget_link(ref, sender):"
    ),
    "a reply may have any number": peer(
        "len(message) == 2 and is_target(message[0])):", "len(message) == 2):"
    ),
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
    "a dead sender has no streams": peer(
        "return None if sender is None else (sender.node, sender.num)",
        "return None if sender is None else (sender.node, sender.num, id(sender))",
    ),
    "a signal waits for credit": connection(
        "        stream.waive()\n", "        stream.waived = 0\n"
    ),
    "a barrier is over with its first stream": connection(
        "            if not item.left:", "            if True:"
    ),
    "an exit overtakes the mail of its sender": signals(
        "self._connection.signal(stream, packed)", "self._connection.signal(None, packed)"
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
        "if self._has_heartbeats and not (self._has_written or self._written):", "if False:"
    ),
    "silence is not noticed": connection(
        "return self._silent_ticks < self._silent_ticks_max or", "return True or"
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
    "a monitor is not sent": signals("            self._send(MONITOR, target)\n", ""),
    "a link is not told the other node": signals(
        "        self._send(LINK, target, other)\n", "        pass\n"
    ),
    "an unlink is not told the other node": signals(
        "        self._send(UNLINK, target, other)\n", "        pass\n"
    ),
    "an end that crosses an unlink is told": signals(
        "if _forget_link(ref, _checked(sender)):",
        "if _forget_link(ref, _checked(sender)) or ref.is_alive:",
    ),
    "a link to a dead actor is silent": signals(
        "            self._tell_end_of_link(sender, ref.cell.doom, ref)\n", "            pass\n"
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

PROCESS_MUTANTS = {
    "a process that computes is cut off": process("has_heartbeats=False", "has_heartbeats=True"),
    "mail before the connection is lost": process(
        "return self._wire is None or self._wire.is_full",
        "return self._wire is not None and self._wire.is_full",
    ),
    "a side that ends keeps what has no credit": process(
        "        self.peer.connection.finish()\n", ""
    ),
    "a side that ends drops what the socket does not take": process(
        "wire is not None and not wire.is_full:", "wire is not None:"
    ),
    "a lost process is still a way": process(
        "        self._runtime.routes.remove(peer.node, peer)\n        self._lost()",
        "        self._lost()",
    ),
    "the exit of the host's parent is that of a stranger": Mutant(
        "processes/host.py",
        "if type(message) is Exit and message.sender is self._parent:",
        "if False:",
    ),
    "the root has a second address": peer("        self._refs[inbox.target] = proxy\n", ""),
    "the end of a root is not told": peer(
        "        self.signals.tell_end_of(ref.num)\n", "        pass\n"
    ),
    "mail for a host goes up to it and down again": peer("        self._refs[number] = ref\n", ""),
    "a host ends with its link": peer(
        "            if ref.node != self._runtime.node:\n",
        "            if True:\n",
    ),
    "a link with a host is not told the process": Mutant(
        "runtime/links.py", "            remote_inbox(far).link(near)\n", "            pass\n"
    ),
    "an idle link keeps its timer": peer(
        "elif self._timer is None and self.connection.needs_ticks:", "elif self._timer is None:"
    ),
    "a link that is used again has no timer": peer(
        "        if self._timer is None:  # there may be something to be granted, or a stream to be closed\n",
        "        if False:\n",
    ),
    "credit is not passed on": peer("return not far.is_waiting(stream.sender)", "return True"),
    "links are not passed on": signals("            far.link(sender)\n", "            pass\n"),
    "ends of linked actors are not passed on": signals(
        "            far.end_link(reason, ended)\n", "            pass\n"
    ),
    "unlinks are not passed on": signals("            far.unlink(sender)\n", "            pass\n"),
    "who links does not hear that the way is lost": peer(
        "if self.is_behind and not other.cell.state & REMOTE:", "if False:"
    ),
    "who is linked does not hear that the way is lost": signals(
        "if far is not None and far.is_behind:", "if False:"
    ),
    "replies to tasks are not passed on": peer(
        "                self._runtime.routes.answer(node, number, value)\n",
        "                pass\n",
    ),
    "a call that is passed on is answered to the wrong node": peer(
        "return (self._peer.node, target) if isinstance(target, int) else target",
        "return (self._peer.node, target if isinstance(target, int) else target[1])",
    ),
    "what cannot be passed on breaks the link": peer(
        "except WireError as error:  # on the way to another process",
        "except ZeroDivisionError as error:",
    ),
    "an actor behind a lost process has ended as any other": signals(
        "LOST_CELL if is_lost else DEAD_CELL", "DEAD_CELL"
    ),
    "what is below this node goes to its parent": remote(
        "while near != self._node:", "while True:"
    ),
    "a process knows its neighbours only": remote('return "", self.parent', 'return "", None'),
    "nodes below a neighbour are not found": remote(
        'name, dot, _ = name.rpartition(".")', 'name, dot = "", ""'
    ),
}
