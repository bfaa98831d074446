"""Faults that a store of records in etcd, and its client, are likely to have."""

from __future__ import annotations

from mutants.planted import Mutant


def client(old: str, new: str) -> Mutant:
    return Mutant("etcd/client.py", old, new)


def gateway(old: str, new: str) -> Mutant:
    return Mutant("etcd/gateway.py", old, new)


def store(old: str, new: str) -> Mutant:
    return Mutant("gm/records/etcd_store.py", old, new)


MUTANTS = {
    "a write that was sent is sent again": client(
        "                if is_write:", "                if False:"
    ),
    "a server that has failed stays the first": client(
        "        if self._endpoints[0] == endpoint:", "        if False:"
    ),
    "a token is never renewed": client(
        '            if self._token in ("", old):', "            if not self._token:"
    ),
    "every task renews the token": client(
        '            if self._token in ("", old):', "            if True:"
    ),
    "the pages of a scan are of different times": client(
        "            revision = revision or newest", "            revision = 0"
    ),
    "a large page is not made smaller": client(
        "                if limit == 1:", "                if limit:"
    ),
    "a closed client opens again": client("        if self._is_closed:", "        if False:"),
    "answers are not bounded": client(
        "            if len(content) > gateway.ANSWER_BYTES_MAX:", "            if False:"
    ),
    "a swap expects nothing": gateway(
        '"mod_revision": revision, "result"', '"mod_revision": 0, "result"'
    ),
    "a swap that was refused is taken for done": gateway(
        "    if answer.succeeded:", "    if True:"
    ),
    "the next page begins with the last row": gateway(
        'key_bytes(after) + b"\\0"', "key_bytes(after)"
    ),
    "a scan goes on behind the prefix": gateway(
        '"range_end": prefix_end(key_bytes(prefix))', '"range_end": b"\\0"'
    ),
    "a server's failure is taken for certain": gateway("{1, 2, 4, 10, 13, 14, 15}", "()"),
    "a conflict is taken for the record": store(
        "            if isinstance(stored, Stored) and not swap.is_done:", "            if False:"
    ),
    "a damaged record is logged with each read": store(
        "        if self._logged.get(key) != revision:", "        if True:"
    ),
    "a damaged record is no record": store(
        '            return self._refused(key, row.revision, f"cannot be read: {error}")',
        "            return NOTHING",
    ),
    "a record above the limit is sent": Mutant(
        "gm/records/codec.py",
        "    if len(entries) > ENTRIES_MAX or len(packed) > RECORD_BYTES_MAX:",
        "    if False:",
    ),
    "a member with two entries is read": Mutant(
        "gm/records/codec.py",
        "    if len({entry.member for entry in found}) < len(found):",
        "    if False:",
    ),
    "a late deletion deletes the successor": Mutant(
        "gm/records/transactions.py",
        "return None if group is not None and group.epoch == self.epoch else group",
        "return None",
    ),
    "a full record takes one more": Mutant(
        "gm/records/transactions.py", " or len(entries) >= ENTRIES_MAX:", ":"
    ),
    "a newcomer that may have been buried is not replaced": Mutant(
        "gm/group.py",
        "                if error.reason != LOST or runtime.is_closed:",
        "                if True:",
    ),
    "a join goes on during the shutdown": Mutant(
        "gm/group.py", "error.reason != LOST or runtime.is_closed:", "error.reason != LOST:"
    ),
    "a member that forgets its group stays": Mutant(
        "gm/ring/member.py", "lambda _: self._stop(FORGOTTEN)", "lambda _: None"
    ),
}
