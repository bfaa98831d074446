"""Ceilings that clients meet, or that several parts share, with units and sources.

A ceiling of one part alone is a constant at the head of its module.
"""

from __future__ import annotations

from typing import Final

from leveret.core.sizes import SizeLimit

# Wire (AMQP 0-9-1 and RabbitMQ's defaults).
FRAME_MAX_BYTES: Final = 131_072
FRAME_MIN_BYTES: Final = 4_096  # also the limit before tune-ok
FRAME_OVERHEAD_BYTES: Final = 8
CHANNEL_MAX: Final = 2_047
HEARTBEAT_S: Final = 60
MESSAGE_BYTES_MAX: Final = 134_217_728
SHORTSTR_BYTES_MAX: Final = 255
PRIORITIES_MAX: Final = 255  # of x-max-priority
TTL_MS_MAX: Final = 315_360_000_000  # ten years
TABLE_DEPTH_MAX: Final = 128  # nested tables and arrays; in RabbitMQ only frame-max is a bound
TABLE_FIELDS_MAX: Final = 65_536  # values in one table, all levels together

# Connections.
HANDSHAKE_S: Final = 10.0  # TCP accept to connection.open
TLS_HANDSHAKE_S: Final = (
    5.0  # RabbitMQ's ssl_handshake_timeout: TCP accept to the first byte of AMQP
)
PROXY_HEADER_S: Final = 3.0  # RabbitMQ's time for the header of the PROXY protocol
PART_WAIT_S: Final = 3.0  # for the client to close the socket, after the last byte sent
SILENT_CLOSE_S: Final = 3.0  # RabbitMQ's delay before it closes without a reply
CLOSING_WAIT_S: Final = 30.0  # for close-ok
# For all that a client has sent before its end: what the sockets' buffers hold, some MB, is read in a second, unless
# a disk or a queue stands still.
REST_S: Final = 60.0
LINGER_S: Final = 5.0  # for a closed connection's last bytes, when the peer does not read
BACKLOG: Final = (
    4_096  # of the kernel's queue of new connections; Linux grants net.core.somaxconn at most
)
UNSENT_BYTES_MAX: Final = (
    16 * 1024 * 1024
)  # replies that a client does not read; above, it is not read
HANDSHAKES_MAX: Final = 8_192  # sockets without an open connection; above, the oldest is closed
CONSUMER_TIMEOUT_MS: Final = 1_800_000

# File descriptors reserved for the node and its stores; sockets of clients get the rest
# (``broker/connection/admission.py``).
DESCRIPTORS_OF_NODE: Final = 64  # process, metadata, control socket with its clients, listeners
# A vhost's store has 7 open at rest and DESCRIPTORS_OF_VHOST at most: segments that are being read, and 32 of
# flushes, checkpoints, merges and snapshots.
DESCRIPTORS_OF_SEGMENTS: Final = 24
DESCRIPTORS_OF_TRANSIENT_SEGMENTS: Final = 8
DESCRIPTORS_OF_VHOST: Final = DESCRIPTORS_OF_SEGMENTS + DESCRIPTORS_OF_TRANSIENT_SEGMENTS + 32

# Work per actor turn, so that no turn blocks the event loop for long.
TURN_MESSAGES: Final = 4_000
PUBLISH_TURN_WORK: Final = 25_000  # of one channel, in units of about 0.1 us
FAN_OUT_QUEUES: Final = 1_000  # that one turn of a channel sends to
FAN_OUT_MESSAGES: Final = 200  # that are sent together to more queues than one turn has time for
DELIVERY_BATCH_MESSAGES: Final = 2_000
DELIVERY_BATCH_BYTES: Final = 256 * 1024
LARGE_BODY_BYTES: Final = 1024 * 1024  # a larger body is written piece by piece

# Flow control per pair of channel and queue: (initial, granted again after).
CREDIT_MESSAGES: Final = (400, 200)
CREDIT_BYTES: Final = (8 * 1024 * 1024, 4 * 1024 * 1024)
# Dead letters of one queue that their targets have not answered for; more wait in the queue.
DEAD_LETTERS_IN_FLIGHT: Final = 4_096
# Queues in which a letter may die after its last rejection; x-death with so many tables has about 20 KB.
DEATHS_MAX: Final = 128
# Copies that dead-lettering may make of a message, estimated from a letter: its targets to the power of its deaths.
DEAD_LETTER_COPIES_MAX: Final = 100_000
DEAD_LETTER_BYTES_IN_FLIGHT: Final = 8 * 1024 * 1024  # heads and bodies; one letter may have more

# Producers that number their messages, of one queue; the guarantee against duplicates lasts as long as the entry.
PRODUCERS_MAX: Final = 10_000  # about 4 MB
NODE_PRODUCERS_SHARE: Final = 10  # producers of all queues: a tenth of the memory limit
NODE_PRODUCERS_MIN: Final = 10_000  # at a small memory limit, too
PRODUCER_EXPIRY_S: Final = 7.0 * 24 * 3600  # without use

# The firehose of a vhost: messages that wait to be copied; further ones are not.
FIREHOSE_MESSAGES_MAX: Final = 20_000
FIREHOSE_BYTES_MAX: Final = 32 * 1024 * 1024
# Lines of the log that wait to be published to amq.rabbitmq.log; further ones are not.
LOG_EXCHANGE_LINES_MAX: Final = 2_000

# Alarms: publishers are blocked above or below.
MEMORY_HIGH_WATERMARK: Final = SizeLimit(share=0.4)
DISK_FREE_LIMIT: Final = SizeLimit(50_000_000)
MEMORY_PAGING_RATIO: Final = 0.5  # RabbitMQ's vm_memory_high_watermark_paging_ratio
# Unfinished contents: the largest are dropped, with their connections, when so much of the limit is in use and they
# take more than both others.
CONTENTS_RELIEF_SHARE: Final = 0.8
CONTENTS_SHARE: Final = 0.25
CONTENTS_BYTES_MIN: Final = 16 * 1024 * 1024
TRANSACTIONS_SHARE: Final = 0.25  # of the memory limit, for the messages of open transactions
# What passes on a connection while the memory alarm is raised; RabbitMQ lets all pass but publishes.
ALARMED_ARGUMENTS_BYTES_MAX: Final = 4_096  # of a method
ALARMED_DEFINITIONS_MAX: Final = (
    5_000  # methods that declare, bind or consume, less the forgotten ones
)
ALARMED_DEFINITIONS_PER_S: Final = 1_000  # so many are forgotten

# Caches keyed by bytes that a peer chooses.
ROUTES_PER_CONNECTION: Final = 4_096
ROUTE_BYTES_PER_CONNECTION: Final = 4 * 1024 * 1024  # about, of those routes
TOPIC_STATES_MAX: Final = (
    100_000  # of a vhost: states with their nodes and targets, and ways; some 10 MB
)

# Regular expressions of permissions and policies. RabbitMQ's limit is ten million steps.
PATTERN_STEPS_MAX: Final = 50_000  # of a search, which then has found nothing

# The control socket of ``leveret ctl``.
CONTROL_CLIENTS_MAX: Final = 16
CONTROL_STALLED_S: Final = 60.0  # a client that sends or reads nothing for so long is dropped
CONTROL_LINE_BYTES_MAX: Final = 2 * 1024 * 1024
# The estimated size of a decoded line: some 160 bytes of definitions take 1 KiB.
CONTROL_LINE_MEMORY_MAX: Final = 8 * 1024 * 1024  # such a line takes 5 ms to decode
CONTROL_MEMORY_SHARE: Final = 2  # all requests: half of the memory limit; one request: half of that
CONTROL_MEMORY_MIN: Final = 64 * 1024 * 1024  # at a small memory limit, too
