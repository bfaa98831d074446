"""The replicas of one queue, without I/O: ``master`` and ``mirror``, the record they share, their messages.

**Terms.** A *replica* is one life of a queue's copy on a node; a copy that starts again is another replica. The
*record* of the queue is in etcd: its *epoch*, its *master*, and the *in-sync* replicas, oldest first. It is changed by
compare-and-swap only. The master numbers its *instructions* in each epoch, and assigns *seqs* to messages, whose upper
bits are the epoch. Only one master assigns seqs in an epoch, so a seq is the same message in all replicas; it is added
once, and removed for good.

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

**Catching up.** A mirror asks the master for its live seqs, as runs, some thousand at a time. It removes the messages
that the master does not have, and fetches those that it lacks, piece by piece. Meanwhile it applies instructions as
usual, so nothing waits for the comparison, and the order in which answers and instructions arrive makes no difference:
only from instructions that were missed it asks anew. So what is sent is what has changed, however long the queue is,
and no log of instructions is kept. RabbitMQ sends a mirror that comes back the whole queue, and compares lengths: two
replicas with the same number of different messages count as synchronised there.

**Durable** are messages. A removal that a crash undoes makes a message come again, as in a queue without mirrors; so no
confirm waits for it. What was handed out is in memory only: after a start all messages count as handed out.

Turned down: seqs without the epoch. Each replica then needs a history of epochs on its disk, which says where its
messages part from those of another (Kafka's leader epochs), and a mirror must not apply instructions before it has
compared. A log of instructions with truncation (Kafka's, Raft's): a queue forgets what was acked, so its live seqs are
a shorter description of its state than any log. Acknowledgements by a second lap of the ring: they cost a hop for each
replica, where a message to the master costs one.
"""
