"""Filters that select nothing: a misspelt name is an error that lists the existing names.

Names of vhosts and queues are compared with the manifests before the job runs. The other filters are checked after it:
if the job found no message, the messages of the queues are read once more for the error text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, Final

from leveret.spark.errors import NothingSelected
from leveret.spark.jobs.selection import Selection
from leveret.spark.scan.manifest import local_path, read_manifest
from leveret.spark.scan.options import ReadOptions
from leveret.spark.scan.pruning import Names
from leveret.spark.scan.reader import open_scan

_SHOWN: Final = 10
_READ_MAX: Final = 100_000  # messages, for the names in an error text
_TIME: Final = "enqueued_at"


def check_names(selection: Selection) -> None:
    """Check that each vhost name and queue name of the selection exists.

    Raises:
        NothingSelected: a name does not.
        NotASnapshot, StoreError: as ``read_manifest``.
    """
    snapshots = [read_manifest(local_path(path)) for path in selection.snapshots]
    stores = [store for snapshot in snapshots for store in snapshot.stores]
    _check("vhost", selection.vhosts, {store.vhost for store in stores})
    vhosts = Names.of(selection.vhosts) if selection.vhosts else Names()
    wanted = [store for store in stores if store.vhost in vhosts]
    _check("queue", selection.queues, {queue.name for each in wanted for queue in each.queues})


def check_found(selection: Selection, messages: float) -> None:
    """Check that filters have selected a message, if the queues have messages.

    Raises:
        NothingSelected: they have not.
        LeveretError: the snapshots cannot be read.
    """
    filters = {
        "routing key": list(map(repr, selection.routing_keys)),
        "latest death": [f"{name} {value!r}" for name, value in selection.death.items()],
        "time": [
            f"{word} {time}"
            for word, time in (("from", selection.since), ("before", selection.until))
            if time
        ],
        "state": [selection.state] if selection.state else [],
        "condition": [selection.where] if selection.where else [],
    }
    given = {name: words for name, words in filters.items() if words}
    if messages or not given:
        return
    keys, deaths, times, read = _there(selection)
    if not read:
        return
    there = {"routing key": ("routing keys", keys), "latest death": ("latest deaths", deaths)}
    text = "; ".join(f"{name} {', '.join(words)}" for name, words in given.items())
    text = f"no message fits: {text}"
    for name, (plural, found) in there.items():
        if name in given:
            text += f"; {plural} there are: {_listed(found)}"
    if "time" in given:
        text += f"; there are messages from {min(times)} to {max(times)}"
    raise NothingSelected(text)


def _check(kind: str, words: Iterable[str], there: set[str]) -> None:
    for word in words:
        names = Names.of((word,))
        if not any(name in names for name in there):
            near = get_close_matches(word, sorted(there), 1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise NothingSelected(
                f"{kind} {word!r} fits none of the snapshot; {hint}there are: {_listed(there)}"
            )


def _listed(names: Iterable[str]) -> str:
    found = sorted(names) if isinstance(names, set) else list(names)
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return (", ".join(found[:_SHOWN]) + more) or "none"


def _there(selection: Selection) -> tuple[list[str], list[str], list[str], int]:
    """Return routing keys and deaths, the most frequent first, times, and the number of messages that were read."""
    every = replace(
        selection,
        routing_keys=(), since="", until="", state="", death_reason="", death_queue="",
        death_exchange=None, where="", fail_on_data_loss=False,
    )  # fmt: skip
    keys: Counter[str] = Counter()
    deaths: Counter[str] = Counter()
    times: set[Any] = set()
    read = 0
    columns = ("routing_key", "x_death", _TIME)
    for batch in open_scan(ReadOptions.of(every.options(columns))).batches():
        rows = batch.to_pydict()
        keys.update(rows["routing_key"])
        deaths.update(_death(each[0]) for each in rows["x_death"] if each)
        times.update((min(rows[_TIME]), max(rows[_TIME])) if batch.num_rows else ())
        read += batch.num_rows
        if read >= _READ_MAX:
            break
    shown = [time.isoformat(timespec="seconds") for time in times]
    return (
        [name for name, _ in keys.most_common()],
        [name for name, _ in deaths.most_common()],
        shown,
        read,
    )


def _death(latest: dict[str, Any]) -> str:
    return " ".join(f"{name} {latest[name]!r}" for name in ("reason", "queue", "exchange"))
