"""Faults that a store of records in etcd, and its client, are likely to have."""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "a write that was sent is sent again": Mutant("EtcdClient._request", "is_write", "False"),
    "a server that has failed stays the first": Mutant(
        "EtcdClient._put_last", "self._endpoints[0] == endpoint", "False"
    ),
    "a token is never renewed": Mutant(
        "EtcdClient._login", "self._token in ('', old)", "not self._token"
    ),
    "every task renews the token": Mutant("EtcdClient._login", "self._token in ('', old)", "True"),
    "the pages of a scan are of different times": Mutant(
        "EtcdClient._scan", "revision or newest", "0"
    ),
    "a large page is not made smaller": Mutant("EtcdClient._scan", "limit == 1", "limit"),
    "a closed client opens again": Mutant("EtcdClient._open", "self._is_closed", "False"),
    "answers are not bounded": Mutant(
        "EtcdClient._content", "len(content) > gateway.ANSWER_BYTES_MAX", "False"
    ),
    "a swap expects nothing": Mutant("swap_request", "revision", "0"),
    "a swap that was refused is taken for done": Mutant("swap_of", "answer.succeeded", "True"),
    "two operations on one key go in one request": Mutant(
        "BatchedKeyValues._send",
        "batch.setdefault(key, each) is not each",
        "batch.setdefault(f'{at}', each) is not each",
    ),
    "an operation overtakes an earlier one on its key": Mutant(
        "BatchedKeyValues._send", "key in self._under_way", "False"
    ),
    "what did not fit is forgotten": Mutant(
        "BatchedKeyValues._send", "later += self._waiting[at:]", "pass"
    ),
    "what waits is not sent when an answer comes": Mutant(
        "BatchedKeyValues._answered", "self._plan()", ""
    ),
    "a value that is too large fails the others": Mutant(
        "BatchedKeyValues._add", "operation(wanted)", ""
    ),
    "the next page begins with the last row": Mutant(
        "scan_request", "key_bytes(after) + b'\\x00'", "key_bytes(after)"
    ),
    "a scan goes on behind the prefix": Mutant("scan_request", "prefix_end(...)", "b'\\x00'"),
    "a server's failure is taken for certain": Mutant("gateway", "frozenset(...)", "frozenset(())"),
    "a conflict is taken for the record": Mutant(
        "EtcdGroupStore.write", "isinstance(...) and (not swap.is_done)", "False"
    ),
    "a damaged record is logged with each read": Mutant(
        "EtcdGroupStore._refused", "self._logged.get(key) != revision", "True"
    ),
    "a damaged record is no record": Mutant(
        "EtcdGroupStore._stored", "self._refused(...)", "NOTHING"
    ),
    "a record above the limit is sent": Mutant(
        "codec.pack", "len(entries) > ENTRIES_MAX or len(packed) > RECORD_BYTES_MAX", "False"
    ),
    "a member with two entries is read": Mutant("_group", "len(...) < len(found)", "False"),
    "a late deletion deletes the successor": Mutant(
        "Forget.apply", "None if group is not None and group.epoch == self.epoch else group", "None"
    ),
    "a full record takes one more": Mutant(
        "Add.apply", "group.lists(...) or len(entries) >= ENTRIES_MAX", "group.lists(...)"
    ),
    "a newcomer that may have been buried is not replaced": Mutant(
        "Group.join", "error.reason != LOST or runtime.is_closed", "True"
    ),
    "a join goes on during the shutdown": Mutant(
        "Group.join", "error.reason != LOST or runtime.is_closed", "error.reason != LOST"
    ),
    "a member that forgets its group stays": Mutant(
        "Member.forget", "self._stop(FORGOTTEN)", "None"
    ),
}
