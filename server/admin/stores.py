"""What status shows of the message stores, one row for each vhost that has one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leveret.broker.vhost.vhost import VHost
    from leveret.msg_store.status import StoreStatus
    from leveret.server.output.json_text import Row


def store_rows(vhosts: Iterable[VHost]) -> list[Row]:
    """Return the figures of the stores that are open."""
    return [
        {"vhost": vhost.name, **_row(vhost.msg_store.status())}
        for vhost in vhosts
        if vhost.msg_store is not None
    ]


def _row(status: StoreStatus) -> Row:
    return {**asdict(status), "transients": status.transients._asdict()}
