"""``Metadata`` in etcd, on an event loop: the metadata store of a broker in a cluster.

It is open when it has loaded all rows and the node may serve clients. From then on its ``listener`` gets every change
of rows, by this node or another, before the outcome of the write that made it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Final, Self, TypeVar

from leveret.core.clock import SystemClock
from leveret.core.errors import ConfigError, StoreError
from leveret.etcd.background import Background
from leveret.etcd.client import EtcdClient
from leveret.metadata.etcd.session import DEFAULTS, Session
from leveret.metadata.etcd.transfer import durable_rows, write_directory
from leveret.metadata.tables import Contents, Row

if TYPE_CHECKING:
    from pathlib import Path

    from leveret.etcd.settings import EtcdSettings
    from leveret.metadata.etcd.replica import Changed
    from leveret.metadata.etcd.session import Listener
    from leveret.metadata.etcd.session_settings import SessionSettings
    from leveret.metadata.interface import Then

R = TypeVar("R", bound=Row)

EPOCHS: Final = 8  # taken at a time, of 2**23
QUEUE_NOS: Final = 32_768  # taken at a time, of 2**32; a start takes as many
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 5.0


class EtcdMetadata:
    """The metadata of a cluster, as one of its nodes has it.

    ``open`` makes it; all calls but ``copy_to`` are made on its event loop.

    Args:
        client: etcd.
        node: the node's name, one of its own in the cluster.
        uuid: of its data directory.
        settings: how it takes part.
        address: where other nodes dial it; "": nowhere.
        directory: the data directory that this process has locked.

    Attributes:
        listener: gets changes, and whether the node may serve; None: nobody does.
    """

    def __init__(
        self,
        client: EtcdClient,
        node: str,
        uuid: str,
        settings: SessionSettings = DEFAULTS,
        address: str = "",
        directory: str = "",
    ) -> None:
        self.listener: Listener | None = None
        self._client = client
        self._background = Background(client)
        clock = SystemClock(asyncio.get_running_loop())
        self._session = Session(
            self._background,
            clock,
            node,
            uuid,
            self,
            settings,
            address=address,
            directory=directory,
        )
        self._lease_s = settings.lease_s
        self._live = asyncio.Event()
        self._epochs: deque[int] = deque()
        self._last_epoch = 0
        self._queue_no = self._queue_nos_end = self._next_end = 0
        self._is_reserving = self._takes_epochs = False

    @classmethod
    async def open(
        cls,
        etcd: EtcdSettings,
        node: str,
        uuid: str,
        settings: SessionSettings = DEFAULTS,
        timeout_s: float = START_TIMEOUT_S,
        address: str = "",
        directory: str = "",
    ) -> Self:
        """Join the cluster; return when the node has all rows, and may serve clients.

        Raises:
            ConfigError: a setting cannot work, other nodes have another ``valid_s``, or the name is another node's, for
                longer than its lease.
            StoreError: it has not come so far in ``timeout_s``; the text says why.
        """
        made = cls(EtcdClient(etcd), node, uuid, settings, address, directory)
        try:
            async with asyncio.timeout(timeout_s):
                await made._begin()
        except TimeoutError as error:
            why = made._session.trouble or "it is slow"
            await made._end()
            raise StoreError(
                f"the node has not joined its cluster in {timeout_s} s: {why}"
            ) from error
        except BaseException:
            await made._end()
            raise
        if refusal := made._disagreement(settings.valid_s):
            await made.leave()
            raise ConfigError(refusal)
        return made

    @property
    def is_live(self) -> bool:
        """Whether the node may serve clients now; asked anew before each turn that serves some."""
        return self._session.is_live

    @property
    def trouble(self) -> str:
        """What keeps the node from serving clients; "": nothing."""
        return self._session.trouble

    @property
    def addresses(self) -> dict[str, str]:
        """Where the other nodes that serve clients are dialled, by name."""
        session = self._session
        found = session.nodes.addresses()
        return {session.keys.node_name(key): address for key, address in found.items()}

    def watch_nodes(self, on_change: Callable[[], None]) -> None:
        """Have ``on_change`` called when ``addresses`` may have changed."""
        self._session.nodes.on_change = on_change

    def when_applied(self, then: Callable[[], None]) -> None:
        """Call ``then`` when all nodes have applied what this one has applied, perhaps at once.

        Who answers a client from rows that it did not write itself waits for this first.
        """
        self._session.when_applied(then)

    # ``Metadata``.

    def load(self) -> Contents:
        """Return all rows, as they are now."""
        contents = Contents()
        for entry in list(self._session.replica.live.values()):
            contents.add(copy(entry.row))
        return contents

    def table(self, kind: type[R]) -> list[R]:
        """Return the rows of one table, as this node has seen them last."""
        rows = (entry.row for entry in self._session.replica.live.values())
        return [copy(row) for row in rows if isinstance(row, kind)]

    def find(self, row: Row) -> Row | None:
        """Return the row that has the key of ``row``, as this node has seen it last."""
        return self._session.find(row)

    def hanging_on(self, row: Row) -> list[Row]:
        """Return the rows that are gone when ``row`` is deleted, as this node has seen them last."""
        return self._session.hanging_on(row)

    def write(self, puts: Sequence[Row], deletes: Sequence[Row], then: Then) -> None:
        """As ``Metadata.write``, made only if no other node has changed the rows since this one saw them.

        The outcome comes when all nodes have applied the write; ``ConflictError``: another was faster. More than 126
        rows, or 1 MiB, are several transactions: the first that fails ends the write; the earlier ones stay.

        Raises:
            StoreError: the store is closed.
        """
        self._session.write(puts, deletes, then)

    def next_boot_epoch(self) -> int:
        """Return a number higher than all before; no other start of any node has it.

        Raises:
            StoreError: all reserved numbers are used, and etcd has not given more yet.
        """
        if len(self._epochs) <= EPOCHS // 2 and not self._takes_epochs:
            self._takes_epochs = True
            self._session.take_numbers(self._session.keys.boot_epoch, EPOCHS, self._epochs_taken)
        if not self._epochs:
            raise StoreError(f"there is no boot epoch: {self.trouble or 'try again'}")
        return self._epochs.popleft()

    def next_queue_no(self) -> int:
        """Return a number that no queue of any node has ever had.

        Raises:
            StoreError: all numbers that were taken are used, and etcd has not given more yet.
        """
        left = self._queue_nos_end - self._queue_no
        if left <= QUEUE_NOS // 2 and not self._next_end and not self._is_reserving:
            self._is_reserving = True
            self._session.take_numbers(self._session.keys.queue_no, QUEUE_NOS, self._reserved)
        if not left:
            if not self._next_end:
                why = self.trouble or "many queues are declared at once; try again"
                raise StoreError(f"there is no number for a queue: {why}")
            self._queue_no = self._next_end - QUEUE_NOS
            self._queue_nos_end, self._next_end = self._next_end, 0
        self._queue_no += 1
        return self._queue_no

    def copy_to(self, directory: Path) -> None:
        """Write the rows that outlive the nodes into a new directory, as metadata of a single node. On any thread.

        Raises:
            StoreError: the write failed.
        """
        if directory.exists():
            raise StoreError(f"metadata cannot be copied: {directory} exists")
        rows = durable_rows(self._session.replica)
        write_directory(directory, rows, self._last_epoch, self._queue_nos_end)

    def close(self) -> None:
        """End at once; other nodes take this one for dead after a while. ``leave`` ends in order."""
        self._session.abort()
        self._background.cancel()

    async def leave(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Make the waiting writes, record for the other nodes that this one no longer serves, and end.

        After ``timeout_s`` it ends without that.
        """
        ended = asyncio.Event()
        self._session.stop(ended.set)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await ended.wait()
        await self._end()

    # ``Listener``.

    def changed(self, changed: Changed) -> None:
        if self.listener is not None:
            self.listener.changed(changed)

    def live(self, is_live: bool) -> None:
        if is_live:
            self._live.set()
        if self.listener is not None:
            self.listener.live(is_live)

    async def _begin(self) -> None:
        self._session.start()
        try:
            async with asyncio.timeout(2 * self._lease_s):
                await self._live.wait()
        except TimeoutError:
            if self._session.taken:
                raise ConfigError(self._session.taken) from None
            await self._live.wait()
        keys = self._session.keys
        self._epochs_taken(await self._numbers(keys.boot_epoch, EPOCHS))
        self._queue_nos_end = await self._numbers(keys.queue_no, QUEUE_NOS)
        self._queue_no = self._queue_nos_end - QUEUE_NOS

    def _disagreement(self, valid_s: float) -> str:
        """Return why this node and another cannot be in one cluster; "": they can."""
        session = self._session
        for key, other_s in session.nodes.validities().items():
            if other_s != valid_s:
                return (
                    f"valid_s is {valid_s:g}, and {other_s:g} on node {session.keys.node_name(key)}: it must be the same "
                    "on all nodes; to change it, stop all of them"
                )
        return ""

    async def _numbers(self, key: str, count: int) -> int:
        taken: asyncio.Future[int | StoreError] = asyncio.get_running_loop().create_future()

        def taken_to(last: int | StoreError) -> None:
            if not taken.done():
                taken.set_result(last)

        self._session.take_numbers(key, count, taken_to)
        last = await taken
        if isinstance(last, StoreError):
            raise last
        return last

    def _reserved(self, last: int | StoreError) -> None:
        self._is_reserving = False
        if not isinstance(last, StoreError):  # else the call that finds no number left says so
            self._next_end = last

    def _epochs_taken(self, last: int | StoreError) -> None:
        self._takes_epochs = False
        if not isinstance(last, StoreError):  # else the call that finds none left says so
            self._epochs.extend(range(last - EPOCHS + 1, last + 1))
            self._last_epoch = last

    async def _end(self) -> None:
        self.close()
        await self._client.close()
        await self._background.settle()
