"""Faults to plant in the traffic between the nodes of a cluster."""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "a declaration is answered before other nodes know where the queue is": Mutant(
        "VHost.until_acknowledged", "yield Until(...)", "yield from ()"
    ),
    "what is deleted stays owed": Mutant("apply_changes", "node.metadata.pending.gone(...)", ""),
    "own rows are applied again": Mutant("apply_changes", "if is_own: ...", "if False: ..."),
    "an exchange does not give way to another node's": Mutant(
        "other_changes._put",
        "exchange is not None and node.metadata.pending.is_being_put(row)",
        "False",
    ),
    "who is overtaken does not begin anew": Mutant("retried", "attempts = _again(...)", "raise"),
    "who waits for a put does not hear of its end": Mutant(
        "PendingWrites.waited_for", "self._ended(put)", ""
    ),
    "another node is answered before all nodes know a queue": Mutant(
        "_declare_for_remote", "yield from _await_existing(...)", ""
    ),
    "an exchange that was declared again is deleted with the earlier one": Mutant(
        "other_changes._drop", "isinstance(target, Exchange)", "False"
    ),
    "a node that has lost its cluster keeps its connections": Mutant(
        "ClusterRows.live", "connections.close_where(...)", "0"
    ),
    "a fan-out crosses once for each queue": Mutant(
        "NodePublisher.send",
        "run.queues = ...\nself._send(...)",
        "for ref in refs:\n    run.queues = [ref.num]\n    self._send(delegate, run)",
    ),
    "publishers do not wait for a link": Mutant(
        "NodePublisher.send", "home.backpressure.is_on", "False"
    ),
    "calls overtake publishes": Mutant(
        "ask_queue", "Ask(entry.ref, request, via=entry.delegate)", "Ask(entry.ref, request)"
    ),
    "a lost node stays up": Mutant("ClusterNode.down", "self.is_up = False", ""),
    "consumers do not hear that a node is lost": Mutant(
        "QueueDirectory._node_down", "for channel, entry in home.down(): ...", "home.down()"
    ),
    "a queue that was stopped stays so for the others": Mutant(
        "RemoteEntry.forget_incarnation", "if self.ended != 'deleted': ...", ""
    ),
    "a queue that is not known to run is not there": Mutant(
        "RemoteEntry.is_refusing",
        "self.ref is None and self.state != 'deleted'",
        "super().is_refusing",
    ),
    "alarms are not told": Mutant(
        "QueueDirectory._announce_changes", "alarms != self._alarms", "False"
    ),
    "alarms of a lost node stay": Mutant(
        "QueueDirectory._node_down", "self._node.resources.alarms.set_remote(...)", ""
    ),
    "the window never closes": Mutant("RemoteGate.delivery_waits", "self.is_open = ...", ""),
    "a client that does not read gives room back": Mutant(
        "RemoteDeliveries.delivered", "self._gate.is_open", "True"
    ),
    "room is not given back when the client reads again": Mutant(
        "RemoteDeliveries.gate_opens", "written >= RETURN_BYTES", "False"
    ),
    "an idle queue keeps its places": Mutant(
        "AmqQueue.on_room_given",
        "(unused := remote_channels.unused_prefetch(...))",
        "False and remote_channels.unused_prefetch(...)",
    ),
    "a queue asks for places only once": Mutant(
        "RemoteLimiter.resumed", "self._is_asking = False", ""
    ),
    "another shared prefetch is not told": Mutant(
        "Deliveries.set_limit", "if remote: ...", "if False: ..."
    ),
    "a queue that restarts tells channels of other nodes itself": Mutant(
        "AmqQueue.init", "filterfalse(...)", "watchers"
    ),
    "consumers of other nodes do not keep an auto-delete queue": Mutant(
        "remote_channels.attach", "entry.watch(...)", ""
    ),
    "other nodes do not hear of queues that are not durable": Mutant(
        "VHost.is_written", "is_durable or self.cluster_nodes is not None", "is_durable"
    ),
    "a queue that another node has taken stays": Mutant(
        "other_changes._put", "_lose(...)\nentry = None", "_lose(...)"
    ),
    "a deletion elsewhere deletes the rows of the next queue": Mutant(
        "VHost.queue_deleted", "self._metadata.delete_left(deletes)\nreturn", "pass"
    ),
    "min-masters chooses the node with the most queues": Mutant("located", "min", "max"),
    "numbers with gaps travel as a run": Mutant(
        "numbers_parts", "count > 1 and numbers == list(...)", "count > 1"
    ),
    "keys of replies do not name their node": Mutant("ReplyConsumers.new", "key += ...", "pass"),
}
