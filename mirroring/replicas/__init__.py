"""The replicas of one queue, without I/O: ``master`` and ``mirror``, the record they share, their messages.

**Terms.** A *replica* is one life of a queue's copy on a node; a copy that starts again is another replica. The
*record* of the queue is in etcd: its *epoch*, its *master*, and the *in-sync* replicas, oldest first. It is changed by
compare-and-swap only. The master assigns *seqs* to messages, so a message has the same seq in each replica, and numbers
its *instructions* in each epoch. The *history* of a replica says which epoch has assigned which seqs: a message is
identified by its epoch and its seq.

**Rules.**

1. The master confirms an instruction when it is durable on all in-sync replicas, and these are not fewer than the
   queue's policy wants. While a change of the record is under way, the replicas of both records count.
2. A mirror becomes in sync by a change of the record that the master makes. When the mirror is complete, the master
   waits for it, and asks for the change as soon as the mirror has everything that was confirmed or handed out.
3. A replica is taken out by a change of the record, and waited for until that is known.
4. The oldest in-sync replica that lives becomes master when the master has ended: by a change of the record, to the
   next epoch. What it has acknowledged in the older epoch until it knows of the change, it has in the next one.
5. Whoever knows an epoch takes nothing from an older one.
6. A change whose outcome is unknown may still take effect until the record is known to have a later revision. So it
   counts as under way until another change has succeeded or failed for its revision.
7. A master that starts again, with what its disk has kept, takes a new epoch before it serves.
8. Messages that consumers may have are below a seq that all in-sync replicas know before these messages are handed out;
   the next master delivers them as redelivered. Those that go straight to consumers bring this mark with them. A master
   that was replaced, and has not heard of it, may hand out as new what the next one has handed out meanwhile.

From these follows: what is confirmed is durable on all replicas of the record (1, 2, 3, 6), so the next master has it
(4), and the master before cannot confirm any more (4, 5), also if it does not know of its successor.

**Catching up.** A mirror asks the master for its history and the runs of live seqs. It removes what the master does not
have: seqs from the point on where the histories part, and seqs that are not live. Then it fetches what it lacks, piece
by piece, while instructions come in as usual. So what is sent is what has changed, however long the queue is, and no
log of instructions is kept. RabbitMQ sends a mirror that comes back the whole queue, and compares lengths: two replicas
with the same number of different messages count as synchronised there.

Turned down: a log of instructions with truncation (Kafka's, Raft's): a queue forgets what was acked, so its live seqs
are a shorter description of its state than any log. Acknowledgements by a second lap of the ring: they cost a hop for
each replica, where a message to the master costs one.
"""
