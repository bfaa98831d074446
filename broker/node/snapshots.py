"""The broker's part in a snapshot: copies stores and definitions into a folder while it serves clients.

Vhosts are copied one after the other, so they are not of one moment; no message is in two of them. The
definitions come last: a queue whose declaration was answered is in the snapshot, and a queue that was
deleted meanwhile is not, nor are its messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.broker.node.background import in_thread
from leveret.broker.node.store_server import store_folder
from leveret.core.errors import StoreError

if TYPE_CHECKING:
    from leveret.broker.node.node import Node

METADATA: Final = "metadata"


async def take(node: Node, folder: Path, vhost_names: Sequence[str]) -> None:
    """Make links and copies of vhosts' durable data in an empty folder beside it, not synced.

    Raises:
        StoreError: a vhost is down, or goes down meanwhile.
        OSError: the disk refuses.
    """
    for name in vhost_names:
        await _take_store(node, name, store_folder(folder, name))
    copy = partial(node.metadata.store.copy_to, folder / METADATA)
    await in_thread(node.gil_yielding, "leveret-snapshot", copy)


async def _take_store(node: Node, vhost_name: str, target: Path) -> None:
    vhost = node.vhosts.get(vhost_name)
    if vhost is None:
        return  # deleted meanwhile
    store = vhost.store.msg_store
    if store is None:
        raise StoreError(f"vhost '{vhost_name}' is down")
    done: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def ended(error: Exception | None) -> None:
        if not done.done():
            done.set_result(error)

    store.snapshot(target, ended)
    error = await done
    if error is not None:
        raise error
