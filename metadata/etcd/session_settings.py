"""How a node takes part in a cluster's metadata."""

from __future__ import annotations

from dataclasses import dataclass, fields

from leveret.core.errors import ConfigError
from leveret.metadata.etcd.codec import PREFIX


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """How a node takes part in a cluster's metadata; all nodes of a cluster have the same.

    Attributes:
        prefix: of all keys; different clusters on one etcd have different ones.
        renew_s: how often the node finds its key in place, at least.
        valid_s: how long it serves clients after that.
        suspect_s: how long another node may take to apply a revision that is waited for.
        lease_s: after which the node's exclusive queues are gone for all, if it has ended without a word; whole
            seconds.
        retry_s: until what has failed is tried again.
        write_timeout_s: after which writes are answered with an error, if etcd has taken none for so long.
    """

    prefix: str = PREFIX
    renew_s: float = 0.5
    valid_s: float = 2.0
    suspect_s: float = 1.0
    lease_s: int = 5
    retry_s: float = 0.5
    write_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        for each in fields(self):
            if each.name != "prefix" and not 0 < getattr(self, each.name) < float("inf"):
                raise ConfigError(
                    f"{each.name} is {getattr(self, each.name)}, it must be above 0 and finite"
                )
        if self.valid_s < 2 * self.renew_s:
            raise ConfigError(
                f"valid_s is {self.valid_s}: it must be at least twice renew_s, {self.renew_s}"
            )
        if self.lease_s < self.valid_s or self.lease_s != int(self.lease_s):
            raise ConfigError(
                f"lease_s is {self.lease_s}: it must be whole seconds, and not below valid_s, {self.valid_s}"
            )
