"""``leveret gm``: the records of groups, read from etcd and, with ``--forget``, deleted.

Exit codes: 0 done; 1 a record is damaged; 64 there is no such group, or none was named to be forgotten; 65 etcd refuses
the login; 69 etcd is not available; 75 a record has changed meanwhile and was not deleted; 78 the endpoints or files
are wrong, or the extra ``cluster`` is not installed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from typing import Any, Final

from leveret.core.errors import ConfigError
from leveret.core.printable import printable
from leveret.etcd.errors import ClusterError, GatewayError, LoginRefusedError
from leveret.etcd.key_values import Row
from leveret.etcd.settings import EtcdSettings
from leveret.gm.records.codec import RecordError, unpack
from leveret.gm.records.etcd_store import keys
from leveret.gm.records.group import GmError
from leveret.server.cli.etcd_arguments import MISSING, settings
from leveret.server.output import formats
from leveret.server.output.terminal import show

EX_DAMAGED: Final = 1


def run(options: argparse.Namespace) -> int:
    """Carry out the parsed command; return the exit code."""
    try:
        beginning = keys(options.prefix)
    except GmError as error:
        raise ConfigError(str(error)) from error
    if options.forget and not options.name:
        return _fail(
            os.EX_USAGE, "name the groups to forget; leveret gm without --forget shows all"
        )
    forgotten = {beginning + name for name in options.name} if options.forget else set()
    try:
        rows, changed = asyncio.run(_scan_and_forget(settings(options), beginning, forgotten))
    except LoginRefusedError as error:
        return _fail(os.EX_DATAERR, str(error))
    except GatewayError as error:
        return _fail(os.EX_CONFIG, str(error))
    except ClusterError as error:
        return _fail(os.EX_UNAVAILABLE, str(error))
    code = _show(options, {row.key.removeprefix(beginning): row for row in rows})
    for key in changed:
        code = _fail(
            os.EX_TEMPFAIL, f"{key} has changed and was not deleted: members use the group"
        )
    return code


async def _scan_and_forget(
    where: EtcdSettings, prefix: str, forgotten: set[str]
) -> tuple[list[Row], list[str]]:
    """Read all records, delete the forgotten ones; return the records read, and the keys that could not be deleted."""
    try:
        from leveret.etcd.client import EtcdClient  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise ConfigError(MISSING) from error
    async with EtcdClient(where) as client:
        rows = await client.scan(prefix)
        wanted = [row for row in rows if row.key in forgotten]
        swaps = [(row.key, await client.swap(row.key, None, row.revision)) for row in wanted]
    return rows, [key for key, swap in swaps if not swap.is_done]


def _show(options: argparse.Namespace, rows: dict[str, Row]) -> int:
    code = 0
    for name in options.name or rows:
        row = rows.get(name)
        if row is None:
            code = code or _fail(os.EX_USAGE, f"there is no group {name!r} under {options.prefix}")
            continue
        try:
            found = _found(name, row)
        except RecordError as error:
            code = _fail(EX_DAMAGED, f"{row.key}: {error}")
            continue
        show(formats.json_line(found) if options.json else _text(found), end="")
    return code


def _found(name: str, row: Row) -> dict[str, Any]:
    group = unpack(row.value, row.revision)
    members = [
        {"node": entry.member.node, "number": entry.member.number, "alive": entry.is_alive}
        for entry in group.entries
    ]
    return {
        "name": name,
        "epoch": group.epoch,
        "version": group.version,
        "revision": row.revision,
        "members": members,
    }


def _text(found: dict[str, Any]) -> str:
    """Return a line for the group, and one for each member in ring order."""
    head = f"{printable(found['name'])}: epoch {found['epoch']}, version {found['version']}"
    lines = [f"{head}, revision {found['revision']}"]
    for each in found["members"]:
        state = "" if each["alive"] else " dead"
        lines.append(f"    {printable(each['node'])}.{each['number']}{state}")
    return "".join(f"{line}\n" for line in lines)


def _fail(code: int, text: str) -> int:
    show(f"leveret: {text}", file=sys.stderr)
    return code
