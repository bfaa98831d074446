"""The output of the command line: rabbitmqctl's table, JSON and CSV, the status page and the tree.

A table value of AMQP (arguments, client properties) comes as ``[name, type, value]`` triples, an
array inside as ``[type, value]`` pairs. JSON shows them in this form, as rabbitmqctl does (for arrays rabbitmqctl
prints an object that loses elements of the same type; here the pairs stay). The other formats show Erlang terms.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Final

from leveret.core.printable import printable
from leveret.management import json_text
from leveret.management.json_text import Row

FORMATTERS: Final = ("table", "json", "csv", "pretty_table")
MACHINE_READABLE: Final = frozenset({"json", "csv"})
_TAIL_BYTES: Final = 64 * 1024  # read at once
TABLES: Final = frozenset({"arguments", "client_properties"})


def rows(formatter: str, columns: Sequence[str], found: list[Row], headers: bool = True) -> str:
    """Return rows in one of ``FORMATTERS``, ending in a line break unless empty."""
    if formatter == "json":
        return _json(columns, found)
    cells = [[cell(column, row.get(column)) for column in columns] for row in found]
    if formatter == "pretty_table":
        return _pretty(columns, cells)
    if not cells:
        return ""
    lines = [list(columns), *cells] if headers else cells
    if formatter == "csv":
        return "".join(",".join(map(_quoted, line)) + "\n" for line in lines)
    return "".join("\t".join(map(printable, line)) + "\n" for line in lines)


def cell(column: str, value: Any) -> str:
    """Return one value as rabbitmqctl's table shows it."""
    if column == "protocol" and isinstance(value, list):
        return "{" + ",".join(map(str, value)) + "}"
    if column in TABLES and isinstance(value, list):
        return _erlang_table(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(str, value)) + "]"
    return _plain(value)


def status(found: Row) -> str:
    """Return the status page."""
    queues, memory, disk = found["queues"], found["memory"], found["disk"]
    files = found["file_descriptors"]
    lines = [
        f"Leveret {found['version']}, kernel {found['kernel']}, "
        f"loop {found['event_loop']}, path {found['path']}, latency {found['latency']}, process {found['pid']}",
        f"up {_duration(found['uptime_s'])}, node {found['node_id']}",
        f"data {found['data_dir']}",
        f"listening on {', '.join(found['listeners'])}",
        "",
        f"vhosts       {found['vhosts']}",
        f"connections  {found['connections']}",
        f"channels     {found['channels']}",
        f"consumers    {found['consumers']}",
        f"queues       {queues['count']}, messages {queues['messages_ready']} ready "
        f"{queues['messages_unacknowledged']} unacknowledged",
        *(
            [f"             {queues['quorum']} quorum queues, one replica each"]
            if queues["quorum"]
            else []
        ),
        f"actors       {found['actors']}",
        f"memory       {_size(memory['used_bytes'])} used, limit {_size(memory['limit_bytes'])}",
        *_memory_parts(memory["parts"]),
        f"disk         {_size(disk['free_bytes'])} free, limit {_size(disk['limit_bytes'])}",
        f"descriptors  {files['total_used'] or 'unknown'} of {files['total_limit']},"
        f" sockets {files['sockets_used']} of {files['sockets_limit']}",
        f"alarms       {', '.join(found['alarms']) or 'none'}",
        *_cluster(found.get("cluster")),
    ]
    lines += [_down(outage) for outage in found["vhosts_down"]]
    for store in found["stores"]:
        lines += ["", *_store(store)]
    if queues["largest"]:
        lines += ["", "\t".join((*_QUEUE_COUNTS.values(), "queue"))]
    for queue in queues["largest"]:
        counts = (str(queue.get(name, "-")) for name in _QUEUE_COUNTS)
        place = printable(f"{queue['name']} in {queue['vhost']}")
        lines.append("\t".join((*counts, place)))
    return "\n".join(lines) + "\n"


def _cluster(cluster: Row | None) -> list[str]:
    """Return lines about the cluster, none of a single node."""
    if cluster is None:
        return []
    own = cluster["node"]
    others = [f"{name} {_node_state(name, cluster)}" for name in cluster["nodes"] if name != own]
    trouble = [f"             serves no clients: {printable(cluster['trouble'])}"]
    return [
        f"cluster      node {own}, other nodes: {', '.join(others) or 'none'}",
        *([] if cluster["is_serving"] else trouble),
    ]


def _node_state(name: str, cluster: Row) -> str:
    if name not in cluster["running_nodes"]:
        return "down"
    return "up" if name in cluster["linked_nodes"] else "up, not linked with this node"


def _memory_parts(parts: Row) -> list[str]:
    """Return a line about the memory that can be counted."""
    return [
        f"             queues {_size(parts['queue_procs'])}, "
        f"arguments {_size(sum(parts['metadata'].values()))}, "
        f"routes and transactions {_size(parts['connection_channels'])}",
        f"             received in part {_size(parts['connection_readers'])}, "
        f"not read by clients {_size(parts['connection_writers'])}",
    ]


_QUEUE_COUNTS: Final = {
    "messages_ready": "ready",
    "messages_unacknowledged": "unacknowledged",
    "consumers": "consumers",
    "messages_ram": "in RAM",
    "messages_paged_out": "paged out",
    "messages_persistent": "persistent",
    "q4": "q4",
    "q3": "q3",
    "delta_messages": "delta",
    "q2": "q2",
    "q1": "q1",
}


def _down(outage: Row) -> str:
    next_s = outage["next_try_in_s"]
    again = "stays down" if next_s is None else f"next try in {next_s:.1f} s"
    if outage["is_retried"] and next_s is None:
        again = "is being started"
    return printable(
        f"down         {outage['vhost']} for {_duration(outage['down_s'])}, tried {outage['tries']}"
        f" times, {again}: {outage['reason']}"
    )


def _store(store: Row) -> list[str]:
    """Return the lines of the status page about the message store of a vhost."""
    age_s, transients = store["checkpoint_age_s"], store["transients"]
    age = "none since the start" if age_s is None else f"{age_s:.0f} s ago"
    return [
        f"store of {printable(store['vhost'])}",
        *(f"  damaged    {printable(text)}" for text in store["damage"]),
        f"  messages   {store['messages']}, lost {store['contents_lost']}, "
        f"read back {store['contents_read']}",
        f"  segments   {store['segments']} with {_size(store['segment_bytes'])}: "
        f"{_size(store['live_bytes'])} live, {_size(store['garbage_bytes'])} garbage",
        *_archive(store),
        f"  collector  {store['merges']} merges, {_size(store['merged_bytes'])} copied, "
        f"{store['removed']} segments with {_size(store['removed_bytes'])} removed",
        f"  journal    {_size(store['journal_bytes'])}, {store['unindexed_rows']} rows to index, "
        f"last checkpoint {age}",
        f"  syncs      {store['syncs']}, mean {store['sync_mean_s'] * 1000:.1f} ms, "
        f"longest {store['sync_longest_s'] * 1000:.1f} ms",
        f"  transients {transients['live']} paged out in {transients['segments']} segments with "
        f"{_size(transients['disk_bytes'])}",
    ]


def _archive(store: Row) -> list[str]:
    if not store["archived_queues"]:
        return []
    return [
        f"  archive    {_size(store['archive_bytes'])} of settled messages in "
        f"{store['archive_segments']} segments, for {store['archived_queues']} queues; "
        f"{_size(store['archive_given_up_bytes'])} given up for a short disk"
    ]


def tree(found: list[Row]) -> str:
    """Return the supervision tree, one actor per line, children indented below their supervisor."""
    return "".join(
        f"{'  ' * row['depth']}{printable(row['name'])}  {row['type']} {printable(row['state'])}"
        f" restarts={row['restarts']}{_last(row['restarted_ago_s'])}\n"
        for row in found
    )


def _last(ago_s: float | None) -> str:
    return "" if ago_s is None else f", the last {_duration(ago_s)} ago"


def _json(columns: Sequence[str], found: list[Row]) -> str:
    lines = (
        json_text.shown(
            {column: "" if row.get(column) is None else row[column] for column in columns}
        )
        for row in found
    )
    body = "\n,".join(lines)
    return f"[\n{body}\n]\n" if body else "[\n]\n"


def _pretty(columns: Sequence[str], cells: list[list[str]]) -> str:
    from rich.console import Console  # noqa: PLC0415 - only when a table is wanted
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(*columns)
    for line in cells:
        table.add_row(*(Text(printable(text)) for text in line))
    sink = io.StringIO()
    Console(file=sink, width=200 if len(columns) > 4 else None).print(table)
    return sink.getvalue()


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _quoted(text: str) -> str:
    return '"' + printable(text).replace('"', '""') + '"'


def _erlang_table(triples: list[list[Any]]) -> str:
    return "[" + ",".join(f"{{{_string(n)},{_term(t, v)}}}" for n, t, v in triples) + "]"


def _term(kind: str, value: Any) -> str:
    if kind == "table":
        return _erlang_table(value)
    if kind == "array":
        return "[" + ",".join(_term(*each) for each in value) + "]"
    if kind in {"longstr", "binary"}:
        return _string(value)
    return "undefined" if value is None else _plain(value)


def _string(text: str) -> str:
    return '"' + str(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _size(size_bytes: int | None) -> str:
    if size_bytes is None:
        return "unknown"
    return f"{size_bytes / 1e9:.1f} GB" if size_bytes >= 1e10 else f"{size_bytes / 1e6:.1f} MB"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "d"), (hours, "h"), (minutes, "min"))
    return " ".join([f"{count} {unit}" for count, unit in parts if count] + [f"{rest} s"])


def json_line(found: Any) -> str:
    """Return a value as JSON on one line."""
    return json_text.shown(found) + "\n"


def last_lines(path: str, count: int) -> list[str]:
    """Return the last lines of a text file, reading no more of it than they take.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        at = file.seek(0, io.SEEK_END)
        data = b""
        while at and data.count(b"\n") <= count:
            size = min(at, _TAIL_BYTES)
            at = file.seek(at - size)
            data = file.read(size) + data
            file.seek(at)
    lines = data.decode("utf-8", "replace").splitlines()
    return lines[-count:] if count else []
