"""VhostFeatures: the features of a vhost that each publish and delivery must check."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leveret.broker.vhost.trace import Firehose


class VhostFeatures:
    """The features of a vhost that each publish and delivery must check.

    A plain class, so that the check is compiled code (docs/decisions/0041).

    Attributes:
        firehose: gets copies of all messages; None while it is off.
        persisting_queues: how many queues keep also transient messages on the disk.
        remote_queues: how many queues live on other nodes.
    """

    __slots__ = ("firehose", "persisting_queues", "remote_queues")

    def __init__(self) -> None:
        self.firehose: Firehose | None = None
        self.persisting_queues = 0
        self.remote_queues = 0
