"""All versions of a group's record in etcd, and whether they are one history in which every change was made once."""

from __future__ import annotations

import base64
import itertools
import json
from typing import Any

from leveret.gm.records.codec import unpack
from leveret.gm.records.group import Group, MemberId
from rigs.cluster.etcd import Etcd


def versions(etcd: Etcd, key: str) -> list[Group]:
    """Return the records that were ever under a key, by asking etcd for every revision; deletions leave no trace."""
    name = base64.b64encode(key.encode()).decode()
    newest = json.loads(etcd.post("/v3/kv/range", json.dumps({"key": name})))
    found: dict[int, Group] = {}
    revision = int(newest["header"]["revision"])
    while revision > 1:
        wanted = {"key": name, "revision": revision}
        rows = json.loads(etcd.post("/v3/kv/range", json.dumps(wanted))).get("kvs", [])
        if not rows:
            break
        row: dict[str, Any] = rows[0]
        revision = int(row["mod_revision"])
        found[revision] = unpack(base64.b64decode(row["value"]), revision)
        revision -= 1
    return [found[at] for at in sorted(found)]


def violations(history: list[Group]) -> list[str]:
    """Return what contradicts one order of views with each change made once.

    Versions follow each other one by one; each differs from the one before in one member added, marked, or any number
    of dead erased, unless a new epoch begins; nobody comes back who was dead or gone.
    """
    found: list[str] = []
    buried: set[MemberId] = set()
    for before, after in itertools.pairwise(history):
        if after.version != before.version + 1:
            found.append(f"version {before.version} is followed by {after.version}")
        was = {entry.member: entry.is_alive for entry in before.entries}
        now = {entry.member: entry.is_alive for entry in after.entries}
        buried |= {member for member in was if not was[member] or member not in now}
        returned = [member for member, is_alive in now.items() if is_alive and member in buried]
        if returned:
            found.append(f"{returned} came back in version {after.version}")
        if after.epoch == before.epoch:
            found += _step(was, now, after.version)
        elif after.epoch < before.epoch or before.alive():
            found.append(f"epoch {before.epoch} of a living group was followed by {after.epoch}")
    return found


def _step(was: dict[MemberId, bool], now: dict[MemberId, bool], version: int) -> list[str]:
    added = [member for member in now if member not in was]
    marked = [member for member in now if was.get(member) and not now[member]]
    erased = [member for member in was if member not in now]
    kinds = [kind for kind in (added, marked, erased) if kind]
    if len(kinds) != 1 or len(added) > 1 or len(marked) > 1 or any(was[each] for each in erased):
        return [f"version {version} added {added}, marked {marked}, erased {erased}"]
    return []
