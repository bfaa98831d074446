"""The back end that asks a web service who users are and what they may: RabbitMQ's ``rabbitmq_auth_backend_http``.

Each question is a request with the parameters of RabbitMQ's plug-in, in the URL (``get``) or as a form (``post``). The
answer is ``allow``, for a login with the user's tags behind it, or ``deny``, with the status 200 or 201; anything else
is an error, which refuses.

Requests are HTTP/1.0 on connections of their own, at most ``CONNECTIONS_MAX`` at a time.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode, urlsplit

from leveret.broker.vhost.auth.auth_backends import AuthBackend, ExternalUser
from leveret.core.errors import LeveretError

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from leveret.server.config.config import Config

CONNECTIONS_MAX: Final = 32
ANSWER_BYTES_MAX: Final = 64 * 1024
METHODS: Final = ("get", "post")
_OK: Final = ("200", "201")


class AnswerError(LeveretError):
    """The service has answered something that is no answer."""


@dataclass(frozen=True, slots=True)
class Urls:
    """Where the questions go."""

    user: str
    vhost: str
    resource: str
    topic: str


class HttpBackend(AuthBackend):
    """Asks a web service."""

    def __init__(self, urls: Urls, method: str) -> None:
        self._urls = urls
        self._method = method.upper()
        self._room = asyncio.Semaphore(CONNECTIONS_MAX)

    async def login(self, name: str, password: bytes | None, peer: str) -> Collection[str] | None:
        given = {"username": name}
        if password is not None:
            given["password"] = password.decode("utf-8", "surrogateescape")
        answer, *tags = (await self._ask(self._urls.user, given)).split() or [""]
        return tags if _is_allowed(answer) else None

    async def may_enter(self, user: ExternalUser, vhost: str) -> bool:
        about = {"vhost": vhost, "ip": user.peer}
        return _is_allowed(await self._ask(self._urls.vhost, _of(user, about)))

    async def may(
        self, user: ExternalUser, vhost: str, kind: str, name: str, permission: str
    ) -> bool:
        about = {"vhost": vhost, "resource": kind, "name": name, "permission": permission}
        return _is_allowed(await self._ask(self._urls.resource, _of(user, about)))

    async def may_topic(
        self, user: ExternalUser, vhost: str, exchange: str, permission: str, routing_key: str
    ) -> bool:
        about = {"vhost": vhost, "resource": "topic", "name": exchange, "permission": permission}
        given = _of(user, about) | {"routing_key": routing_key}
        given |= {"variable_map.username": user.name, "variable_map.vhost": vhost}
        return _is_allowed(await self._ask(self._urls.topic, given))

    async def _ask(self, url: str, given: dict[str, str]) -> str:
        """Return the text of the answer, in small letters and without spaces around it."""
        parts = urlsplit(url)
        form = urlencode(given, errors="surrogateescape")
        async with self._room:
            status, body = await _exchange(parts, _request(self._method, parts, form))
        if status not in _OK:
            raise AnswerError(f"{parts.hostname} has answered with the status {status}")
        return body.decode("utf-8", "replace").strip().lower()


def _of(user: ExternalUser, about: dict[str, str]) -> dict[str, str]:
    return {"username": user.name, **about, "tags": " ".join(sorted(user.tags))}


def _is_allowed(answer: str) -> bool:
    if answer not in {"allow", "deny"}:
        raise AnswerError(f"the answer is neither allow nor deny but {answer[:100]!r}")
    return answer == "allow"


def _request(method: str, url: SplitResult, form: str) -> bytes:
    path = url.path or "/"
    lines = [f"Host: {url.netloc.rpartition('@')[2]}", "Connection: close", "Accept: text/plain"]
    body = b""
    if method == "GET":
        path += f"?{url.query}&{form}" if url.query else f"?{form}"
    else:
        path += f"?{url.query}" if url.query else ""
        body = form.encode("ascii")
        lines += ["Content-Type: application/x-www-form-urlencoded", f"Content-Length: {len(body)}"]
    head = "\r\n".join([f"{method} {path} HTTP/1.0", *lines, "", ""])
    return head.encode("latin-1", "replace") + body


async def _exchange(url: SplitResult, request: bytes) -> tuple[str, bytes]:
    """Return the status and the body of the answer."""
    is_tls = url.scheme == "https"
    reader, writer = await asyncio.open_connection(
        url.hostname,
        url.port or (443 if is_tls else 80),
        ssl=ssl.create_default_context() if is_tls else None,
        limit=ANSWER_BYTES_MAX,
    )
    try:
        writer.write(request)
        await writer.drain()
        answer = b""
        while len(answer) < ANSWER_BYTES_MAX and (more := await reader.read(ANSWER_BYTES_MAX)):
            answer += more
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(b"\r\n", 1)[0].decode("latin-1").split(None, 2)
    if len(words) < 2 or not words[0].startswith("HTTP/"):
        raise AnswerError(f"{url.hostname} does not speak HTTP")
    return words[1], body


def http_backend(config: Config) -> HttpBackend:
    """Return the back end of these settings."""
    urls = Urls(
        config.auth_http_user_path,
        config.auth_http_vhost_path,
        config.auth_http_resource_path,
        config.auth_http_topic_path,
    )
    return HttpBackend(urls, config.auth_http_method)
