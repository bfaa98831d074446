"""Faults to plant in the links between nodes, and between a process and its parent."""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "the end of a linked actor may be nobody's": Mutant(
        "Signals._on_link_exit", "_checked(sender)", "sender"
    ),
    "a reply may have any number": Mutant("Peer._answered", "is_target(...)", ""),
    "an earlier process of a linked node's name may still be there": Mutant(
        "Node.is_past", "peer is not None and peer.node != node", "False"
    ),
    "a node that is out of reach is taken for past": Mutant(
        "Node.is_past",
        "peer is not None and peer.node != node",
        "peer is None or peer.node != node",
    ),
    "this node takes itself for past": Mutant("Node.is_past", "node != self.runtime.node", "True"),
    "the end of an actor overtakes its mail": Mutant(
        "Connection.signal_behind",
        "[stream for stream in streams if stream.queue or stream.parts]",
        "[]",
    ),
    "a dead sender has no streams": Mutant(
        "peer._name", "(sender.node, sender.num)", "(sender.node, sender.num, id(sender))"
    ),
    "a signal waits for credit": Mutant("Connection._waive", "stream.waive()", "stream.waived = 0"),
    "a barrier is over with its first stream": Mutant("Connection._turn", "not item.left", "True"),
    "an exit overtakes the mail of its sender": Mutant(
        "Signals.send_exit", "self._connection.signal(...)", "self._connection.signal(None, packed)"
    ),
    "mail overtakes a large one of its pair": Mutant(
        "Connection.send",
        "bodies or size > RUN_BYTES or stream.queue or stream.credit.is_blocked or stream.parts",
        "bodies or size > RUN_BYTES",
    ),
    "mail overtakes the rest of a large one": Mutant("Connection.send", "stream.parts", ""),
    "there is no credit": Mutant("Connection._write_run", "stream.credit.spend(...)", ""),
    "a run counts for no bytes": Mutant(
        "Connection._write_run", "stream.credit.spend(...)", "stream.credit.spend(len(run), 0)"
    ),
    "what is taken in is not granted": Mutant("Connection._grant", "self._write(...)", "pass"),
    "grants do not wait for the receiver": Mutant(
        "_may_grant", "4 * to.cell.mail_count() <= stream.messages", "True"
    ),
    "a stream waits for ever when it is granted": Mutant(
        "Connection._granted", "self._make_ready(stream)", ""
    ),
    "a large mail is written in one go": Mutant(
        "Connection._write_chunk", "self._limits.chunk_bytes", "2 ** 20"
    ),
    "small mail keeps streams that wait from their turn": Mutant(
        "Connection.take",
        "ready and (is_first or self._written_bytes < size_max)",
        "ready and (not self._written) and (is_first or self._written_bytes < size_max)",
    ),
    "too many large mails are written at once": Mutant(
        "Connection._begin_large", "self._large_count >= LARGE_MAILS_MAX", "False"
    ),
    "streams that wait for a large one are forgotten": Mutant(
        "Connection._write_chunk", "waiting.is_ready = False", ""
    ),
    "a stream with mail under way is closed": Mutant(
        "Connection._sweep", "stream.is_idle", "not stream.queue"
    ),
    "a closed stream is used again": Mutant(
        "Peer.closed", "_inbox_of(ref).streams.pop(...)", "pass"
    ),
    "idle streams are kept": Mutant("Connection._sweep", "stream.is_idle", "False"),
    "no heartbeats": Mutant(
        "Connection.tick",
        "self._has_heartbeats and (not (self._has_written or self._written))",
        "False",
    ),
    "silence is not noticed": Mutant(
        "Connection.tick", "self._silent_ticks < self._silent_ticks_max", "True"
    ),
    "another incarnation is read": Mutant(
        "FrameReader.feed", "incarnation != self._incarnation", "False"
    ),
    "addresses outlive their link": Mutant(
        "Peer.lost", "self._runtime.turns.end_remote(...)", "pass"
    ),
    "a lost link is no end for monitors set later": Mutant("Peer.lost", "LOST_CELL", "DEAD_CELL"),
    "a node that is down is not told": Mutant("Node.down", "self._tell(...)", ""),
    "a monitor is not sent": Mutant("Signals.watch", "self._send(...)", ""),
    "a link is not told the other node": Mutant("Signals.send_link", "self._send(...)", "pass"),
    "an unlink is not told the other node": Mutant(
        "Signals.send_unlink", "self._send(...)", "pass"
    ),
    "an end that crosses an unlink is told": Mutant(
        "Signals._on_link_exit", "_forget_link(...)", "_forget_link(...) or ref.is_alive"
    ),
    "a link to a dead actor is silent": Mutant(
        "Signals._on_link", "self._tell_end_of_link(...)", "pass"
    ),
    "replies to calls of tasks are lost": Mutant(
        "Peer._answered", "Answer(future).give(value)", "pass"
    ),
    "who waits for mail to leave is not told of a broken link": Mutant(
        "Peer.lost", "for call in notices.values(): ...", ""
    ),
    "both connections of two nodes that dial each other are used": Mutant(
        "Node._claim", "not is_dialler and self.name < name and self._is_dialling(node)", "False"
    ),
    "a node that cannot be reached is not dialled again": Mutant(
        "Node._redial", "dial.timer = ...", ""
    ),
    "nodes disagree who was parted": Mutant(
        "Node.were_parted",
        "own <= peer.mine.parted_at and number <= peer.theirs.parted_at",
        "own <= peer.mine.parted_at",
    ),
    "no proof is checked": Mutant("Handshake._read_proof", "not hmac.compare_digest(...)", "False"),
    "a proof is as good from either side": Mutant(
        "Handshake._mac", "_DIALLER if is_dialler else _LISTENER", "_DIALLER"
    ),
    "a proof is as good for another connection": Mutant(
        "Handshake._mac", "side + first + second", "side"
    ),
    "what is claimed is not proved": Mutant(
        "Handshake._mac", "side + first + second + fields", "side + first + second"
    ),
    "a node talks to itself": Mutant(
        "Handshake._read_hello", "peer.rpartition(...)[0] == self._node.rpartition(...)[0]", "False"
    ),
}

PROCESS_MUTANTS = {
    "a process that computes is cut off": Mutant(
        "ProcessLink.__init__",
        "self.peer = ...",
        "self.peer = Peer(runtime, node, claim, claim, LIMITS, self, self, has_heartbeats=True)",
    ),
    "mail before the connection is lost": Mutant(
        "ProcessLink.is_full",
        "self._wire is None or self._wire.is_full",
        "self._wire is not None and self._wire.is_full",
    ),
    "a side that ends keeps what has no credit": Mutant(
        "ProcessLink.close", "self.peer.connection.finish()", ""
    ),
    "a side that ends drops what the socket does not take": Mutant(
        "ProcessLink._write", "not wire.is_full", ""
    ),
    "a lost process is still a way": Mutant(
        "ProcessLink.down", "self._runtime.routes.remove(...)", ""
    ),
    "the exit of the host's parent is that of a stranger": Mutant(
        "HostInbox.append", "type(message) is Exit and message.sender is self._parent", "False"
    ),
    "the root has a second address": Mutant("Peer.adopt", "self._refs[inbox.target] = proxy", ""),
    "the end of a root is not told": Mutant(
        "Peer.stand_for", "self.signals.tell_end_of(...)", "pass"
    ),
    "mail for a host goes up to it and down again": Mutant(
        "Peer.stand_for", "self._refs[number] = ref", ""
    ),
    "a host ends with its link": Mutant("Peer.lost", "ref.node != self._runtime.node", "True"),
    "a link with a host is not told the process": Mutant(
        "tell_link", "remote_inbox(far).link(near)", "pass"
    ),
    "an idle link keeps its timer": Mutant(
        "Peer._tick", "self._timer is None and self.connection.needs_ticks", "self._timer is None"
    ),
    "a link that is used again has no timer": Mutant(
        "Peer.received", "self._timer is None", "False"
    ),
    "credit is not passed on": Mutant("_may_grant", "not far.is_waiting(...)", "True"),
    "links are not passed on": Mutant("Signals._on_link", "far.link(sender)", "pass"),
    "ends of linked actors are not passed on": Mutant(
        "Signals._tell_end_of_link", "far.end_link(...)", "pass"
    ),
    "unlinks are not passed on": Mutant("Signals._on_unlink", "far.unlink(sender)", "pass"),
    "who links does not hear that the way is lost": Mutant(
        "Inbox.link", "self.is_behind and (not other.cell.state & REMOTE)", "False"
    ),
    "who is linked does not hear that the way is lost": Mutant(
        "_watch_if_behind", "far is not None and far.is_behind", "False"
    ),
    "replies to tasks are not passed on": Mutant(
        "Peer._answered", "self._runtime.routes.answer(...)", "pass"
    ),
    "a call that is passed on is answered to the wrong node": Mutant(
        "RemoteAnswer.name",
        "return ...",
        "return (self._peer.node, target if isinstance(target, int) else target[1])",
    ),
    "what cannot be passed on breaks the link": Mutant(
        "Peer.deliver", "WireError", "ZeroDivisionError"
    ),
    "an actor behind a lost process has ended as any other": Mutant(
        "Signals._remote_ended", "LOST_CELL if is_lost else DEAD_CELL", "DEAD_CELL"
    ),
    "what is below this node goes to its parent": Mutant(
        "Routes._towards", "near != self._node", "True"
    ),
    "a process knows its neighbours only": Mutant("Routes._towards", "self.parent", "None"),
    "nodes below a neighbour are not found": Mutant(
        "Routes._towards", "name, dot, _ = ...", "name, dot = ('', '')"
    ),
}
