"""Faults to plant in the traffic between the nodes of a cluster."""

from __future__ import annotations

from mutants.planted import Mutant

_DIRECTORY, _CLUSTER_NODES = "cluster/queue_directory.py", "registry/cluster_nodes.py"
_GATE, _DELIVERIES = "remote/remote_gate.py", "channel/consuming/remote_deliveries.py"
_MAIL, _AMQQUEUE = "remote/mail_between_nodes.py", "queue/amqqueue.py"

_CHANGES = "cluster/other_changes.py"

MUTANTS = {
    "a declaration is answered before other nodes know where the queue is": Mutant(
        "vhost/vhost.py",
        "            yield Until(self.cluster_nodes.when_acknowledged)",
        "            yield from ()",
    ),
    "what is deleted stays owed": Mutant(
        _CHANGES, "    node.metadata.pending.gone(deletes, is_own)\n", ""
    ),
    "own rows are applied again": Mutant(
        _CHANGES,
        "    if is_own:\n        for row in puts:",
        "    if False:\n        for row in puts:",
    ),
    "an exchange does not give way to another node's": Mutant(
        _CHANGES,
        "        if exchange is not None and node.metadata.pending.is_being_put(row):",
        "        if False:",
    ),
    "who is overtaken does not begin anew": Mutant(
        "vhost/metadata_writer.py",
        "        with suppress(OvertakenError):\n",
        "        if True:\n",
    ),
    "who waits for a put does not hear of its end": Mutant(
        "vhost/pending_writes.py",
        "            del self._puts[name]\n            self._ended(put)\n",
        "            del self._puts[name]\n",
    ),
    "another node is answered before all nodes know a queue": Mutant(
        "vhost/queue_declare.py",
        "        yield from vhost.wait_for(vhost.queue_row(current))\n",
        "",
    ),
    "an exchange that was declared again is deleted with the earlier one": Mutant(
        _CHANGES, "    if isinstance(target, Exchange):\n", "    if False:\n"
    ),
    "a node that has lost its cluster keeps its connections": Mutant(
        "cluster/cluster_rows.py",
        "            closed = connections.close_where(lambda _: True, LOST_CLUSTER)",
        "            closed = 0",
    ),
    "a fan-out crosses once for each queue": Mutant(
        "channel/publishing/node_publish.py",
        "                run.queues = [ref.num for ref in refs]\n                self._send(delegate, run)",
        "                for ref in refs:\n                    run.queues = [ref.num]\n"
        "                    self._send(delegate, run)",
    ),
    "publishers do not wait for a link": Mutant(
        "channel/publishing/node_publish.py",
        "            if home.backpressure.is_on:",
        "            if False:",
    ),
    "calls overtake publishes": Mutant("queue/calls.py", ", via=entry.delegate", ""),
    "a lost node stays up": Mutant(
        _CLUSTER_NODES,
        "        self.is_up = False\n        self.delegates.clear()",
        "        self.delegates.clear()",
    ),
    "consumers do not hear that a node is lost": Mutant(
        _DIRECTORY,
        "        for channel, entry in home.down():\n            self.runtime.send(channel, QueueFailed(entry))",
        "        home.down()",
    ),
    "a queue that was stopped stays so for the others": Mutant(
        _CLUSTER_NODES,
        '        if self.ended != "deleted":\n            self.ended = None\n\n    def stopped',
        "\n    def stopped",
    ),
    "a queue that is not known to run is not there": Mutant(
        _CLUSTER_NODES,
        '        return self.ref is None and self.state != "deleted"',
        "        return super().is_refusing",
    ),
    "alarms are not told": Mutant(
        _DIRECTORY, "        if alarms != self._alarms:", "        if False:"
    ),
    "alarms of a lost node stay": Mutant(
        _DIRECTORY, "        self._node.resources.alarms.set_elsewhere(name, ())\n", ""
    ),
    "the window never closes": Mutant(
        _GATE,
        "        self.room_bytes -= size_bytes\n        self.is_open = self.room_bytes > 0",
        "        self.room_bytes -= size_bytes",
    ),
    "a client that does not read gives room back": Mutant(
        _DELIVERIES, "        if self._gate.is_open:", "        if True:"
    ),
    "room is not given back when the client reads again": Mutant(
        _DELIVERIES, "            if written >= RETURN_BYTES:\n", "            if False:\n"
    ),
    "an idle queue keeps its places": Mutant(
        _AMQQUEUE, "        if unused := remote_channels", "        if False and remote_channels"
    ),
    "a queue asks for places only once": Mutant(
        _GATE, "        self._is_asking = False\n\n    def give", "\n    def give"
    ),
    "another shared prefetch is not told": Mutant(
        "channel/consuming/deliveries.py", "        if remote:\n", "        if False:\n"
    ),
    "a queue that restarts tells channels of other nodes itself": Mutant(
        _AMQQUEUE, "filterfalse(is_remote, watchers)", "watchers"
    ),
    "consumers of other nodes do not keep an auto-delete queue": Mutant(
        "queue/consumers/remote_channels.py", "    entry.watch(consume.channel)\n", ""
    ),
    "other nodes do not hear of queues that are not durable": Mutant(
        "vhost/vhost.py", "return is_durable or self.cluster_nodes is not None", "return is_durable"
    ),
    "a queue that another node has taken stays": Mutant(
        "cluster/other_changes.py",
        "            there = None\n        if there is None:",
        "        if there is None:",
    ),
    "a deletion elsewhere deletes the rows of the next queue": Mutant(
        "vhost/vhost.py",
        "            self._metadata.delete_left(deletes)\n            return\n",
        "            pass\n",
    ),
    "min-masters chooses the node with the most queues": Mutant(
        "vhost/queue_declare.py", "others.get(min(names", "others.get(max(names"
    ),
    "numbers with gaps travel as a run": Mutant(
        _MAIL,
        "    if count > 1 and numbers == list(range(numbers[0], numbers[0] + count)):",
        "    if count > 1:",
    ),
    "keys of replies do not name their node": Mutant(
        "channel/reply_consumers.py",
        "            key += _node_mark(self.cluster_nodes.own)\n",
        "            pass\n",
    ),
}
