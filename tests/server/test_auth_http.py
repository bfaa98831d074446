"""The back end that asks a web service, against a service of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import parse_qsl, urlsplit

import pytest

from leveret.broker.vhost.auth.auth_backends import ExternalUser
from leveret.server.auth_http import CONNECTIONS_MAX, AnswerError, HttpBackend, Urls


class Service:
    """Answers each request with ``answer``, and notes it."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, list[tuple[str, str]]]] = []
        self.heads: list[str] = []
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nallow"
        self.open = self.most = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.most = max(self.most, self.open)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, target, _ = head.split("\r\n", 1)[0].split(" ")
        length = next(
            (int(line[15:]) for line in head.split("\r\n") if line[:15] == "Content-Length:"), 0
        )
        body = (await reader.readexactly(length)).decode()
        url = urlsplit(target)
        self.heads.append(head)
        form = parse_qsl(body or url.query, keep_blank_values=True)
        self.requests.append((method, url.path, form))
        await self.gate.wait()
        self.open -= 1
        writer.write(self.answer)
        writer.close()


@pytest.fixture
async def service() -> Service:
    return Service()


@pytest.fixture
async def place(service: Service) -> AsyncIterator[str]:
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server:
        yield f"http://{host}:{port}"


def backend(place: str, method: str = "get") -> HttpBackend:
    paths = (f"{place}/auth/{name}" for name in ("user", "vhost", "resource", "topic"))
    return HttpBackend(Urls(*paths), method)


def user(asked: HttpBackend, *tags: str) -> ExternalUser:
    return ExternalUser("ann", tags, asked, "10.0.0.7")


@pytest.mark.parametrize("method", ["get", "post"])
async def test_the_parameters_are_those_of_rabbitmqs_plug_in(
    service: Service, place: str, method: str
) -> None:
    asked = backend(place, method)
    ann = user(asked, "monitoring", "administrator")

    assert await asked.login("ann", b"s&cret \xc3\xa9", "10.0.0.7") == []
    assert await asked.may_enter(ann, "/")
    assert await asked.may(ann, "/", "queue", "a queue", "configure")
    assert await asked.may_topic(ann, "/", "amq.topic", "write", "a.#")

    tags = ("tags", "administrator monitoring")
    assert service.requests == [
        (method.upper(), "/auth/user", [("username", "ann"), ("password", "s&cret é")]),
        (
            method.upper(),
            "/auth/vhost",
            [("username", "ann"), ("vhost", "/"), ("ip", "10.0.0.7"), tags],
        ),
        (
            method.upper(),
            "/auth/resource",
            [
                ("username", "ann"), ("vhost", "/"), ("resource", "queue"), ("name", "a queue"),
                ("permission", "configure"), tags,
            ],
        ),
        (
            method.upper(),
            "/auth/topic",
            [
                ("username", "ann"), ("vhost", "/"), ("resource", "topic"), ("name", "amq.topic"),
                ("permission", "write"), tags, ("routing_key", "a.#"),
                ("variable_map.username", "ann"), ("variable_map.vhost", "/"),
            ],
        ),
    ]  # fmt: skip


async def test_a_certificates_login_has_no_password(service: Service, place: str) -> None:
    await backend(place).login("ann", None, "10.0.0.7")

    assert service.requests[0][2] == [("username", "ann")]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"allow", []),
        (b"ALLOW\n", []),
        (b"allow administrator monitoring", ["administrator", "monitoring"]),
        (b"deny", None),
        (b" Deny ", None),
    ],
)
async def test_answers_to_logins(
    service: Service, place: str, body: bytes, expected: list[str] | None
) -> None:
    service.answer = b"HTTP/1.0 201 Created\r\n\r\n" + body

    assert await backend(place).login("ann", b"", "") == expected


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.1 500 Oh\r\n\r\nallow", "status 500"),
        (b"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", "status 302"),
        (b"HTTP/1.1 200 OK\r\n\r\nperhaps", "neither allow nor deny but 'perhaps'"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "neither allow nor deny"),
        (b"", "does not speak HTTP"),
        (b"SSH-2.0\r\n", "does not speak HTTP"),
    ],
)
async def test_anything_else_is_an_error(
    service: Service, place: str, answer: bytes, text: str
) -> None:
    service.answer = answer
    asked = backend(place)

    with pytest.raises(AnswerError, match=text):
        await asked.login("ann", b"", "")
    with pytest.raises(AnswerError, match=text):
        await asked.may_enter(user(asked), "/")


async def test_a_service_that_is_not_there_is_an_error() -> None:
    with pytest.raises(OSError, match="1"):
        await backend("http://127.0.0.1:1").login("ann", b"", "")


async def test_names_cannot_forge_a_request(service: Service, place: str) -> None:
    asked = backend(place)

    await asked.may(user(asked), "/", "queue", "q HTTP/1.0\r\nHost: evil\r\n\r\n&name=x", "read")

    assert ("name", "q HTTP/1.0\r\nHost: evil\r\n\r\n&name=x") in service.requests[0][2]
    assert service.heads[0].count("Host:") == 1


async def test_few_requests_are_open_at_a_time(service: Service, place: str) -> None:
    asked = backend(place)
    service.gate.clear()
    all_of_them = [
        asked.may_enter(user(asked), f"v{number}") for number in range(3 * CONNECTIONS_MAX)
    ]
    answers = asyncio.gather(*all_of_them)
    while service.open < CONNECTIONS_MAX:  # noqa: ASYNC110 - a few turns
        await asyncio.sleep(0)
    service.gate.set()

    assert all(await answers)
    assert service.most == CONNECTIONS_MAX
