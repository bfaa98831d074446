"""EtcdClient: sends requests to the servers of one etcd cluster, one after the other until one answers.

It stays with the server that has answered last. A *read* that fails is tried at each endpoint once. A *write* is sent
to the next endpoint only if it cannot have reached this one; once it was sent, silence and failures of the server are
an unknown outcome, which only the caller can resolve: it reads again. To send the write again would do no harm, as it
is a compare-and-swap, but the answer would be a conflict of the write with itself.

Every request is bounded in time: ``connect_timeout_s`` for a connection, ``timeout_s`` for an answer. So a call takes
at most both times the number of endpoints, and three times that if it has to log in.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Final, Self

import aiohttp

from leveret.etcd import gateway, gateway_txns
from leveret.etcd.errors import (
    CompactedError,
    LeaseGoneError,
    LoginRefusedError,
    TooLargeError,
    UnavailableError,
    UnknownOutcomeError,
)
from leveret.etcd.key_values import CompareAndSwap, Row, Scan

if TYPE_CHECKING:
    from types import TracebackType

    from leveret.etcd.key_values import Event, Operation, Outcome, Swap, Txn, TxnAnswer
    from leveret.etcd.settings import EtcdSettings

CONNECTIONS_MAX: Final = 16  # per client; further requests wait for one, as for a connection
PAGE_ROWS: Final = 200
SCANS_MAX: Final = 3
LARGE_BYTES: Final = 512 * 1024  # of a body; aiohttp warns of bytes above 1 MiB


class EtcdClient:
    """A client of one etcd cluster, for the event loop that it is made in.

    Args:
        settings: where etcd is, and as whom it is asked.

    Raises:
        ConfigError: a file of certificates cannot be used.
    """

    def __init__(self, settings: EtcdSettings) -> None:
        self._settings = settings
        self._endpoints = [endpoint.rstrip("/") for endpoint in settings.endpoints]
        self._tls = settings.tls()
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False
        self._watches: set[aiohttp.ClientResponse] = set()
        self._token = ""
        self._login_lock = asyncio.Lock()

    async def read(self, key: str) -> Row | None:
        """Return the value of a key, as of now.

        Raises:
            ClusterError: see ``leveret.etcd.errors``; never ``UnknownOutcomeError``.
        """
        return gateway.read_answer(await self._ask(gateway.RANGE, gateway.read_request(key)))

    async def swap(self, key: str, value: bytes | None, revision: int) -> Swap:
        """Write a value, or delete it if ``value`` is None, if the key's revision is ``revision``; 0: it has none.

        Raises:
            UnknownOutcomeError: read the key to find out.
            ClusterError: any other: nothing was written.
        """
        body = gateway.swap_request(key, value, revision)
        return gateway.swap_answer(key, value, await self._ask(gateway.TXN, body, is_write=True))

    async def scan(self, prefix: str) -> list[Row]:
        """Return all keys with a prefix in order, as they were at one time; errors as ``scan_at``."""
        return (await self.scan_at(prefix)).rows

    async def scan_at(self, prefix: str) -> Scan:
        """Return all keys with a prefix in order, and the revision of the store at which they were so.

        Raises:
            CompactedError: the store was compacted meanwhile, again and again.
            ClusterError: see ``leveret.etcd.errors``; never ``UnknownOutcomeError``.
        """
        for _ in range(SCANS_MAX - 1):
            try:
                return await self._scan(prefix)
            except CompactedError:
                continue
        return await self._scan(prefix)

    async def _scan(self, prefix: str) -> Scan:
        found: list[Row] = []
        revision, limit, is_more = 0, PAGE_ROWS, True
        while is_more:
            after = found[-1].key if found else None
            request = gateway.scan_request(prefix, after, limit, revision)
            try:
                answer = await self._ask(gateway.RANGE, request)
            except TooLargeError:
                if limit == 1:
                    raise
                limit = max(1, limit // 4)
                continue
            rows, is_more, newest = gateway.scan_answer(answer)
            revision = revision or newest
            found += rows
        return Scan(found, revision)

    async def transact(self, txn: Txn) -> TxnAnswer:
        """Make a transaction.

        Raises:
            UnknownOutcomeError: it may take effect, now or later.
            LeaseGoneError: a lease of its puts does not exist.
            ClusterError: any other: it has had no effect.
        """
        body = gateway_txns.txn_request(txn)
        is_write = bool(txn.writes)
        answer = await self._ask(gateway.TXN, body, is_write=is_write)
        return gateway_txns.txn_answer(txn, answer)

    async def exchange(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Carry out operations on different keys in one request; each succeeds or fails for itself.

        Raises:
            UnknownOutcomeError: each write may take effect, now or later.
            ClusterError: any other: none has had an effect.
        """
        body = gateway_txns.exchange_request(list(map(gateway_txns.operation, operations)))
        is_write = any(isinstance(each, CompareAndSwap) for each in operations)
        answer = await self._ask(gateway.TXN, body, is_write=is_write)
        return gateway_txns.exchange_answer(operations, answer)

    async def grant(self, ttl_s: int) -> int:
        """Return the number of a new lease, which ends ``ttl_s`` after it was kept alive last.

        Raises:
            UnknownOutcomeError: perhaps there is one, that nobody keeps alive.
            ClusterError: there is none.
        """
        body = gateway_txns.grant_request(ttl_s)
        answer = await self._ask(gateway_txns.GRANT, body, is_write=True)
        return gateway_txns.grant_answer(answer)

    async def keep_alive(self, lease: int) -> bool:
        """Have a lease last its full time again; return False if it has ended.

        Raises:
            ClusterError: see ``leveret.etcd.errors``; never ``UnknownOutcomeError``.
        """
        body = gateway_txns.lease_request(lease)
        return gateway_txns.keep_alive_answer(await self._ask(gateway_txns.KEEP_ALIVE, body))

    async def revoke(self, lease: int) -> bool:
        """End a lease, and its keys; return False if it has ended before.

        Raises:
            ClusterError: see ``leveret.etcd.errors``; never ``UnknownOutcomeError``: it is sent again.
        """
        try:
            await self._ask(gateway_txns.REVOKE, gateway_txns.lease_request(lease))
        except LeaseGoneError:
            return False
        return True

    async def watch(self, prefix: str, revision: int) -> AsyncGenerator[list[Event], None]:
        """Yield the writes to keys with a prefix, from a revision on, in order, until the connection ends.

        The writes of one revision are in one list. It ends by an error only; the caller begins again behind the last
        revision that it has seen, at another server if there is one.

        Raises:
            CompactedError: the store does not keep that revision any more.
            ClusterError: the connection has ended, or cannot be made.
        """
        token = await self._login("") if self._settings.user and not self._token else self._token
        endpoint, body = self._endpoints[0], gateway_txns.watch_request(prefix, revision)
        try:
            with _failures(endpoint):
                async with self._open().post(
                    endpoint + gateway_txns.WATCH,
                    data=body,
                    headers=_headers(token),
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(connect=self._settings.connect_timeout_s),
                ) as answer:
                    if answer.status != 200:
                        content = await self._content(answer, endpoint)
                        raise gateway.failure(answer.status, content, endpoint)
                    self._watches.add(answer)
                    try:
                        async for line in _lines(answer, endpoint):
                            if events := gateway_txns.watch_events(line, endpoint):
                                yield events
                    finally:
                        self._watches.discard(answer)
            raise UnavailableError(f"{endpoint} has ended a watch")
        except gateway.OldTokenError as error:
            if token:
                await self._login(token)
            raise UnavailableError(f"{error}; the login is made again") from error
        except CompactedError:
            raise
        except gateway.NoAnswerError as error:
            self._put_last(endpoint)
            raise UnavailableError(str(error)) from error
        except UnavailableError:
            self._put_last(endpoint)
            raise

    async def close(self) -> None:
        """Close the connections; requests and watches under way fail."""
        self._is_closed = True
        for answer in self._watches:  # closing its connection would not wake who reads it
            answer.content.set_exception(aiohttp.ClientConnectionError("the client is closed"))
        if self._session is not None:
            await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # Logging in.

    async def _ask(self, path: str, body: bytes, *, is_write: bool = False) -> bytes:
        """Return the answer to a request; with a login, and once more if that has become old."""
        if not self._settings.user:
            return await self._request(path, body, is_write=is_write)
        token = self._token or await self._login("")
        try:
            return await self._request(path, body, is_write=is_write, token=token)
        except gateway.OldTokenError:
            token = await self._login(token)
        try:
            return await self._request(path, body, is_write=is_write, token=token)
        except gateway.OldTokenError as error:
            raise UnavailableError(f"{error}; it refuses a new login, too") from error

    async def _login(self, old: str) -> str:
        """Return a token that is not ``old``; one task logs in for all."""
        async with self._login_lock:
            if self._token in ("", old):
                user, password = self._settings.user, self._settings.password
                answer = await self._request(
                    gateway.AUTHENTICATE, gateway.login_request(user, password)
                )
                self._token = gateway.login_answer(answer)
            return self._token

    # Servers.

    async def _request(
        self, path: str, body: bytes, *, is_write: bool = False, token: str = ""
    ) -> bytes:
        """Return the answer of the first server that gives one; it comes first from now on."""
        failures = []
        for endpoint in tuple(self._endpoints):
            try:
                return await self._post(endpoint, path, body, token)
            except UnavailableError as error:
                failures.append(str(error))
            except gateway.NoAnswerError as error:
                if is_write:
                    self._put_last(endpoint)
                    raise UnknownOutcomeError(
                        f"{error}; read again whether it was written"
                    ) from error
                failures.append(str(error))
            except gateway.OldTokenError as error:
                if not self._settings.user:
                    raise LoginRefusedError(f"{error}; set user and password") from error
                raise
            self._put_last(endpoint)
        raise UnavailableError(f"etcd is not available: {'; '.join(failures)}")

    def _put_last(self, endpoint: str) -> None:
        if self._endpoints[0] == endpoint:
            self._endpoints.append(self._endpoints.pop(0))

    async def _post(self, endpoint: str, path: str, body: bytes, token: str) -> bytes:
        """Return what one server answers.

        Raises:
            UnavailableError: the request has had no effect.
            NoAnswerError: perhaps it has.
            ClusterError: the server refuses it.
        """
        with _failures(endpoint):
            async with self._open().post(
                endpoint + path, data=_sent(body), headers=_headers(token), allow_redirects=False
            ) as answer:
                content = await self._content(answer, endpoint)
        if answer.status != 200:
            raise gateway.failure(answer.status, content, endpoint)
        return content

    @staticmethod
    async def _content(answer: aiohttp.ClientResponse, endpoint: str) -> bytes:
        content = bytearray()
        async for piece in answer.content.iter_any():
            content += piece
            if len(content) > gateway.ANSWER_BYTES_MAX:
                answer.close()
                raise TooLargeError(
                    f"answer of {endpoint} is above {gateway.ANSWER_BYTES_MAX} bytes"
                )
        return bytes(content)

    def _open(self) -> aiohttp.ClientSession:
        if self._is_closed:
            raise UnavailableError("the client of etcd is closed")
        if self._session is None:
            settings = self._settings
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX, ssl=self._tls or True),
                timeout=aiohttp.ClientTimeout(
                    total=settings.connect_timeout_s + settings.timeout_s,
                    connect=settings.connect_timeout_s,
                    sock_read=settings.timeout_s,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


def _sent(body: bytes) -> bytes | BytesIO:
    """Return a body as aiohttp takes it: large ones in pieces, so that the event loop is not held up."""
    return BytesIO(body) if len(body) > LARGE_BYTES else body


def _headers(token: str) -> dict[str, str]:
    headers = {"Content-Type": "application/json"}
    return headers | {"Authorization": token} if token else headers


@contextmanager
def _failures(endpoint: str) -> Iterator[None]:
    """Raise the failures of a connection as ``UnavailableError`` or ``NoAnswerError``."""
    try:
        yield
    except aiohttp.ClientSSLError as error:
        raise UnavailableError(f"TLS with {endpoint}: {error}; see the certificates") from error
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise UnavailableError(f"{endpoint} cannot be reached: {_text(error)}") from error
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise gateway.NoAnswerError(f"{endpoint} has not answered: {_text(error)}") from error


async def _lines(answer: aiohttp.ClientResponse, endpoint: str) -> AsyncIterator[bytes]:
    """Yield the lines of an answer as they come."""
    rest = bytearray()
    async for piece in answer.content.iter_any():
        start = len(rest)
        rest += piece
        while (end := rest.find(b"\n", start)) >= 0:
            yield bytes(rest[:end])
            del rest[: end + 1]
            start = 0
        if len(rest) > gateway.ANSWER_BYTES_MAX:
            raise TooLargeError(f"news of {endpoint} is above {gateway.ANSWER_BYTES_MAX} bytes")


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
