"""Dead letters counted by where they are, why and where they died, and what they were published to.

Groups are made of the latest death (the first entry of ``x-death``). Parts of a job are counted apart and merged, so
each count has a ceiling: beyond it new groups go together as one, new keys as others.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, NamedTuple

from leveret.core.printable import printable
from leveret.spark.jobs.dead_letters.in_both import InBoth

COLUMNS: Final = ("vhost", "queue", "x_death", "routing_key", "properties", "body_size", "body")
_GROUPS_MAX: Final = 1_000
_KEYS_MAX: Final = 10_000  # of a group
_SAMPLES: Final = 3
_SAMPLE_BYTES: Final = 120
_TOP: Final = 5
_OTHERS: Final = "(others)"


class GroupName(NamedTuple):
    """A group: the vhost and queue that have the letters, and their latest death."""

    vhost: str
    queue: str
    reason: str
    died_in: str
    exchange: str


class Group:
    """The letters of a group."""

    def __init__(self) -> None:
        self.messages = 0
        self.body_bytes = 0
        self.hours: Counter[str] = Counter()  # of the latest death, in UTC
        self.deaths: Counter[str] = Counter()  # how often the letters have died in this way
        self.keys: Counter[str] = Counter()  # that they had at their latest death
        self.samples: list[str] = []

    def add(self, row: dict[str, Any], death: dict[str, Any]) -> None:
        self.messages += 1
        self.body_bytes += row["body_size"]
        self.hours[_hour(death["time"])] += 1
        self.deaths[str(death["count"])] += 1
        keys = death["routing_keys"] or [row["routing_key"] or ""]
        self._count_key(keys[0], 1)
        self._sample([shown(row["body"])])

    def merge(self, fields: dict[str, Any]) -> None:
        self.messages += fields["messages"]
        self.body_bytes += fields["body_bytes"]
        self.hours.update(fields["hours"])
        self.deaths.update(fields["deaths"])
        for key, count in fields["keys"].items():
            self._count_key(key, count)
        self._sample(fields["samples"])

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def _count_key(self, key: str, count: int) -> None:
        known = key in self.keys or len(self.keys) < _KEYS_MAX
        self.keys[key if known else _OTHERS] += count

    def _sample(self, bodies: Iterable[str]) -> None:
        self.samples += [body for body in bodies if body not in self.samples]
        del self.samples[_SAMPLES:]


class DeadLetterGroups:
    """Counts letters by groups; ``not_dead`` are messages without a death."""

    def __init__(self) -> None:
        self.not_dead = 0
        self.in_both = InBoth()
        self.groups: dict[GroupName, Group] = {}

    def add(self, batch: Any) -> None:
        """Count a record batch with ``COLUMNS``."""
        for row in batch.to_pylist():
            self.in_both.add(row)
            deaths = row["x_death"]
            if not deaths:
                self.not_dead += 1
                continue
            death = deaths[0]
            died = (death["reason"] or "", death["queue"] or "", death["exchange"] or "")
            self._group(GroupName(row["vhost"], row["queue"], *died)).add(row, death)

    def pack(self) -> bytes:
        groups = [[*name, group.as_dict()] for name, group in self.groups.items()]
        fields = {"not_dead": self.not_dead, "groups": groups, "in_both": self.in_both.pack()}
        return json.dumps(fields).encode()

    def merge(self, packed: bytes) -> None:
        """Add what another part of the job has counted and packed."""
        fields = json.loads(packed)
        self.not_dead += fields["not_dead"]
        self.in_both.merge(fields["in_both"])
        for *name, group in fields["groups"]:
            self._group(GroupName(*name)).merge(group)

    def _group(self, name: GroupName) -> Group:
        if name not in self.groups and len(self.groups) >= _GROUPS_MAX:
            name = GroupName(*[_OTHERS] * len(GroupName._fields))
        return self.groups.setdefault(name, Group())

    def rows(self) -> list[tuple[GroupName, dict[str, Any]]]:
        """Return the groups for a report, the largest first."""
        by_size = sorted(self.groups.items(), key=lambda item: (-item[1].messages, item[0]))
        return [(name, _row(name, group)) for name, group in by_size]


def is_others(name: GroupName) -> bool:
    """Return whether a group has the letters of all groups beyond the ceiling."""
    return name.queue == name.reason == name.died_in == _OTHERS


def shown(body: bytes) -> str:
    r"""Return the beginning of a body on one line; bytes that are no UTF-8 and controls as ``\xNN``."""
    text = printable(body[:_SAMPLE_BYTES].decode("utf-8", "backslashreplace"))
    return text + "..." if len(body) > _SAMPLE_BYTES else text


def _row(name: GroupName, group: Group) -> dict[str, Any]:
    return name._asdict() | {
        "messages": group.messages,
        "body_bytes": group.body_bytes,
        "hours": dict(sorted(group.hours.items())),
        "deaths": dict(sorted(group.deaths.items())),
        "top_keys": dict(group.keys.most_common(_TOP)),
        "samples": group.samples,
    }


def _hour(time: datetime | None) -> str:
    return time.strftime("%Y-%m-%dT%H") if time is not None else "unknown"
