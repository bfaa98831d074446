"""Users of auth back ends: logins, permissions, what is kept, and what failures mean.

Tests: broker/connection/secret_update.py, broker/vhost/read_your_writes.py
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import Any

import pytest

from leveret.amqp import methods as m
from leveret.broker.vhost.auth.auth_backends import (
    QUESTIONS_MAX,
    AuthBackend,
    ExternalAccess,
    ExternalUser,
    Link,
    Question,
)
from leveret.management.errors import RefusedError
from leveret.management.verbs.users import UserAdmin
from leveret.testing.virtual_clock import VirtualClock
from rigs.broker_rig import HEADER, Client, Rig
from rigs.waiting import eventually

TIMEOUT_S = 0.05


class Company(AuthBackend):
    """Knows ``ann``; its answers wait while ``gate`` is closed."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.denied: set[tuple[str, ...]] = set()
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None

    async def _answer(self, *question: Any) -> bool:
        self.asked.append(question)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return not any(set(each) <= set(question) for each in self.denied)

    async def login(self, name: str, password: bytes | None, peer: str) -> Collection[str] | None:
        is_known = await self._answer("login", name, password, peer)
        return ["monitoring"] if is_known and (name, password) == ("ann", b"secret") else None

    async def may_enter(self, user: ExternalUser, vhost: str) -> bool:
        return await self._answer("vhost", user.name, vhost)

    async def may(
        self, user: ExternalUser, vhost: str, kind: str, name: str, permission: str
    ) -> bool:
        return await self._answer(user.name, vhost, kind, name, permission)

    async def may_topic(
        self, user: ExternalUser, vhost: str, exchange: str, permission: str, routing_key: str
    ) -> bool:
        return await self._answer("topic", user.name, vhost, exchange, permission, routing_key)

    async def update_secret(self, user: ExternalUser, secret: bytes) -> bool:
        return await self._answer("update", user.name, secret)


@pytest.fixture
def company() -> Company:
    return Company()


@pytest.fixture
def quiet() -> Rig:
    """A broker that is made outside of the event loop, so that its actors run by hand."""
    return Rig()


@pytest.fixture
async def rig(quiet: Rig, company: Company) -> AsyncIterator[Rig]:
    """A broker that asks the company, then looks at its own users."""
    access = use(quiet, (company, company), (None, None))
    yield quiet
    await ended(access)


def use(rig: Rig, *chain: Link) -> ExternalAccess:
    clock: VirtualClock = rig.clock
    access = ExternalAccess(chain, clock, 15.0, TIMEOUT_S)
    access.load(rig.store.load())
    node = rig.node
    node.access = node.connections.access = access
    for vhost in node.vhosts.values():
        vhost.access = access
    return access


async def ended(access: ExternalAccess) -> None:
    access.close()
    for _ in range(3):
        await asyncio.sleep(0)


async def answered(rig: Rig) -> None:
    """Let the back end answer, and the broker go on."""
    for _ in range(8):
        await asyncio.sleep(0)
        rig.settle()


async def until_closed(rig: Rig, client: Client) -> list[Any]:
    """Return what the client is sent, connection.close the last; a back end may be late before."""
    taken: list[Any] = []

    def is_closed() -> bool:
        rig.settle()
        taken.extend(client.take())
        return any(type(each) is m.ConnectionClose for each in taken)

    await eventually(is_closed)
    return taken


async def logged_in(
    rig: Rig, user: str = "ann", password: str = "secret", vhost: str = "/"
) -> Client:
    client = rig.client()
    properties = {"capabilities": ("F", {"authentication_failure_close": ("t", True)})}
    client.feed(HEADER)
    client.send(0, m.ConnectionStartOk(properties, "PLAIN", f"\0{user}\0{password}".encode()))
    await answered(rig)
    if client.wire.is_reading and client.is_up:
        client.send(0, m.ConnectionTuneOk(2047, 131_072, 0))
        client.send(0, m.ConnectionOpen(vhost))
        await answered(rig)
    return client


async def channel_of(rig: Rig) -> Client:
    client = await logged_in(rig)
    client.send(1, m.ChannelOpen())
    assert type(client.take()[-1]) is m.ChannelOpenOk
    return client


async def ask(rig: Rig, client: Client, method: m.Method, channel: int = 1) -> Any:
    client.send(channel, method)
    await answered(rig)
    return client.take()[-1]


async def test_a_login_waits_for_the_answer(rig: Rig, company: Company) -> None:
    company.gate.clear()
    client = await logged_in(rig)
    assert [type(each) for each in client.take()] == [m.ConnectionStart]
    assert not client.wire.is_reading

    company.gate.set()
    await answered(rig)

    assert [type(each) for each in client.take()] == [m.ConnectionTune]
    assert company.asked == [("login", "ann", b"secret", "127.0.0.1")]


async def test_what_a_client_sends_meanwhile_is_read_afterwards(rig: Rig, company: Company) -> None:
    company.gate.clear()
    client = rig.client()
    start = m.ConnectionStartOk({}, "PLAIN", b"\0ann\0secret")
    sent = [start, m.ConnectionTuneOk(2047, 131_072, 0), m.ConnectionOpen("/")]
    client.feed(HEADER)
    client.feed(b"".join(m.method_frame(0, m.encode(each)) for each in sent))
    await answered(rig)
    company.gate.set()
    await answered(rig)
    await answered(rig)

    assert [type(each) for each in client.take()] == [
        m.ConnectionStart, m.ConnectionTune, m.ConnectionOpenOk,
    ]  # fmt: skip


async def test_the_user_has_the_tags_of_the_back_end(rig: Rig) -> None:
    client = await logged_in(rig)

    assert type(client.take()[-1]) is m.ConnectionOpenOk
    [reader] = rig.node.connections.readers.values()
    assert reader.session is not None
    assert reader.session.user.tags == {"monitoring"}


@pytest.mark.parametrize("failure", ["wrong", "error", "late"])
async def test_a_refused_login(
    rig: Rig, company: Company, failure: str, caplog: pytest.LogCaptureFixture
) -> None:
    if failure == "error":
        company.error = OSError("no route")
    if failure == "late":
        company.gate.clear()

    client = await logged_in(rig, password="wrong" if failure == "wrong" else "secret")
    closed = (await until_closed(rig, client))[-1]

    assert closed.reply_code == 403
    assert closed.reply_text.startswith("ACCESS_REFUSED - Login was refused")
    told = {"wrong": "invalid credentials", "error": "no route", "late": "TimeoutError"}
    assert told[failure] in caplog.text
    assert "secret" not in caplog.text


async def test_users_of_the_broker_itself_come_next(rig: Rig, company: Company) -> None:
    client = await logged_in(rig, "guest", "guest")

    assert type(client.take()[-1]) is m.ConnectionOpenOk
    client.send(1, m.ChannelOpen(), m.QueueDeclare("q"))
    assert type(client.take()[-1]) is m.QueueDeclareOk
    assert len(company.asked) == 1


async def test_a_vhost_may_be_refused(rig: Rig, company: Company) -> None:
    company.denied = {("vhost", "ann")}

    client = await logged_in(rig)

    closed = client.take()[-1]
    assert (closed.reply_code, closed.reply_text) == (
        530, "NOT_ALLOWED - access to vhost '/' refused for user 'ann'",
    )  # fmt: skip


async def test_each_permission_is_asked_once(rig: Rig, company: Company) -> None:
    client = await channel_of(rig)
    company.asked.clear()

    for _ in range(3):
        assert type(await ask(rig, client, m.QueueDeclare("q"))) is m.QueueDeclareOk
    bound = await ask(rig, client, m.QueueBind("q", "amq.topic", "a.b"))
    client.publish(1, "a.b", b"one", b"two", exchange="amq.topic")
    await answered(rig)
    assert type(await ask(rig, client, m.BasicConsume("q", "tag"))) is bytes

    assert type(bound) is m.QueueBindOk
    assert company.asked == [
        ("ann", "/", "queue", "q", "configure"),
        ("ann", "/", "queue", "q", "write"),
        ("ann", "/", "exchange", "amq.topic", "read"),
        ("topic", "ann", "/", "amq.topic", "read", "a.b"),
        ("ann", "/", "exchange", "amq.topic", "write"),
        ("topic", "ann", "/", "amq.topic", "write", "a.b"),
        ("ann", "/", "queue", "q", "read"),
    ]


async def test_messages_wait_in_order_for_the_answer(rig: Rig, company: Company) -> None:
    client = await channel_of(rig)
    await ask(rig, client, m.QueueDeclare("q"))
    company.gate.clear()
    publishes = client.contents(1, *(("", "q", b"%d" % number, {}) for number in (1, 2, 3)))
    get = m.method_frame(1, m.encode(m.BasicGet("q", no_ack=True)))
    client.feed(publishes + get)
    await answered(rig)
    assert client.take() == []
    assert not client.wire.is_reading

    company.gate.set()
    for _ in range(3):
        await answered(rig)

    assert client.bodies() == [b"1"]
    found = await ask(rig, client, m.QueueDeclare("q", passive=True))
    assert found.message_count == 2


async def test_a_refusal_closes_the_channel(rig: Rig, company: Company) -> None:
    company.denied = {("queue", "q", "configure")}
    client = await channel_of(rig)

    closed = await ask(rig, client, m.QueueDeclare("q"))

    assert (closed.reply_code, closed.reply_text) == (
        403, "ACCESS_REFUSED - access to queue 'q' in vhost '/' refused for user 'ann'",
    )  # fmt: skip


async def test_a_topic_may_be_refused(rig: Rig, company: Company) -> None:
    company.denied = {("topic", "a.b")}
    client = await channel_of(rig)
    client.publish(1, "a.b", b"", exchange="amq.topic")
    await answered(rig)

    closed = client.take()[-1]

    assert closed.reply_text == (
        "ACCESS_REFUSED - access to topic 'a.b' in exchange 'amq.topic' in vhost '/'"
        " refused for user 'ann'"
    )


async def test_a_queue_named_by_the_server_is_made(rig: Rig) -> None:
    client = await channel_of(rig)
    arguments: Any = {"x-dead-letter-exchange": ("S", b"amq.fanout")}

    made = await ask(rig, client, m.QueueDeclare("", arguments=arguments))

    assert type(made) is m.QueueDeclareOk
    assert made.queue.startswith("amq.gen-")
    assert len(rig.queues) == 1


async def test_a_queue_that_another_declares_while_the_back_end_is_asked_is_compared(
    rig: Rig, company: Company
) -> None:
    client = await channel_of(rig)
    await ask(rig, client, m.QueueDeclare("q"))
    await ask(rig, client, m.QueueDelete("q"))
    other = await logged_in(rig, "guest", "guest")
    await ask(rig, other, m.ChannelOpen())
    company.gate.clear()
    arguments: Any = {"x-dead-letter-exchange": ("S", b"amq.fanout")}
    client.send(1, m.QueueDeclare("q", arguments=arguments))
    await answered(rig)
    assert await ask(rig, other, m.QueueDeclare("q", durable=True)) == m.QueueDeclareOk("q", 0, 0)

    company.gate.set()
    await answered(rig)

    [closed] = client.take()
    assert (closed.reply_code, rig.queues["q"].durable) == (406, True)


async def test_an_error_refuses_and_is_not_kept(rig: Rig, company: Company) -> None:
    client = await channel_of(rig)
    company.error = OSError("no route")
    assert (await ask(rig, client, m.QueueDeclare("q"))).reply_code == 403
    client.send(1, m.ChannelCloseOk())
    company.error = None
    client.send(1, m.ChannelOpen())
    client.take()

    assert type(await ask(rig, client, m.QueueDeclare("q"))) is m.QueueDeclareOk


async def test_answers_are_forgotten_after_a_while(rig: Rig, company: Company) -> None:
    client = await channel_of(rig)
    await ask(rig, client, m.QueueDeclare("q"))
    client.publish(1, "q", b"one")
    await answered(rig)
    company.denied = {("amq.default",)}
    client.publish(1, "q", b"two")
    await answered(rig)
    assert client.take() == []

    rig.jump(15)
    client.publish(1, "q", b"three")
    await answered(rig)

    assert client.take()[-1].reply_text.startswith("ACCESS_REFUSED - access to exchange")
    found = await ask(rig, await channel_of(rig), m.QueueDeclare("q", passive=True))
    assert found.message_count == 2


async def test_a_client_that_ends_while_it_waits_harms_nobody(rig: Rig, company: Company) -> None:
    client, other = await channel_of(rig), await channel_of(rig)
    company.gate.clear()
    client.send(1, m.QueueDeclare("q"))
    client.publish(1, "q", b"one")
    unborn = await logged_in(rig)
    await answered(rig)
    client.hang_up()
    unborn.hang_up()
    company.gate.set()
    await answered(rig)

    assert type(await ask(rig, other, m.QueueDeclare("r"))) is m.QueueDeclareOk
    assert list(rig.queues) == ["r"]


async def updated(rig: Rig, client: Client, secret: bytes) -> list[Any]:
    client.send(0, m.ConnectionUpdateSecret(secret, "it is time"))
    await answered(rig)
    return client.take()


async def test_a_new_secret_goes_to_the_back_end_and_permissions_are_asked_anew(
    rig: Rig, company: Company, caplog: pytest.LogCaptureFixture
) -> None:
    client = await logged_in(rig)
    client.send(1, m.ChannelOpen(), m.QueueDeclare("q"))
    await answered(rig)
    client.take()
    company.asked.clear()

    assert await updated(rig, client, b"token") == [m.ConnectionUpdateSecretOk()]

    assert company.asked == [("update", "ann", b"token")]
    company.denied.add(("q", "configure"))
    client.send(1, m.QueueDeclare("q"))
    await answered(rig)
    assert client.take()[-1].reply_code == 403
    assert "token" not in caplog.text


@pytest.mark.parametrize("failure", ["refused", "error", "late"])
async def test_a_new_secret_may_be_refused(rig: Rig, company: Company, failure: str) -> None:
    client = await logged_in(rig)
    client.take()
    company.denied.add(("update",))
    if failure == "error":
        company.error = OSError("no route")
    if failure == "late":
        company.gate.clear()

    client.send(0, m.ConnectionUpdateSecret(b"token", "it is time"))
    [closed] = await until_closed(rig, client)
    refused = "New secret was refused by one of the backends"
    text = refused if failure == "refused" else "Secret update failed"
    assert (closed.reply_code, closed.reply_text) == (530, f"NOT_ALLOWED - {text}")
    assert (closed.class_id, closed.method_id) == (10, 70)


async def test_a_client_that_ends_while_its_secret_is_looked_at(rig: Rig, company: Company) -> None:
    client = await logged_in(rig)
    company.gate.clear()
    await updated(rig, client, b"token")

    client.hang_up()
    company.gate.set()
    await answered(rig)

    assert not client.is_up


async def test_too_many_new_secrets_are_refused(rig: Rig, company: Company) -> None:
    client = await logged_in(rig)
    client.take()
    company.gate.clear()
    update = m.method_frame(0, m.encode(m.ConnectionUpdateSecret(b"token", "")))

    client.feed(update * (QUESTIONS_MAX + 1))

    [closed] = client.take()
    assert closed.reply_text == "NOT_ALLOWED - Secret update failed"


async def test_a_new_secret_means_nothing_to_other_users(rig: Rig, company: Company) -> None:
    class Simple(AuthBackend):
        """Defines nothing."""

    client = await logged_in(rig, "guest", "guest")
    client.take()
    company.asked.clear()
    assert await updated(rig, client, b"any") == [m.ConnectionUpdateSecretOk()]
    assert company.asked == []
    assert await Simple().update_secret(ExternalUser("x", [], Simple(), ""), b"any")


async def test_an_operator_may_check_a_password(rig: Rig) -> None:
    users = UserAdmin(rig.node)

    await users.authenticate_user("ann", "secret")
    await users.authenticate_user("guest", "guest")
    with pytest.raises(RefusedError, match='failed to authenticate user "ann"'):
        await users.authenticate_user("ann", "wrong")


async def test_equal_questions_are_asked_once_and_too_many_are_refused(company: Company) -> None:
    access = ExternalAccess([(company, company)], VirtualClock(), 15.0, TIMEOUT_S)
    user = ExternalUser("ann", [], company, "127.0.0.1")
    company.gate.clear()
    for _ in range(2):
        for number in range(QUESTIONS_MAX):
            with pytest.raises(Question):
                access.may(user, "/", "queue", f"q{number}", "read")

    assert not access.may(user, "/", "queue", "one more", "read")
    await asyncio.sleep(0)
    assert len(company.asked) == QUESTIONS_MAX
    await ended(access)


# Links of two back ends.


class Directory(AuthBackend):
    """Knows the passwords of ``guest`` and ``bob``, and gives them a tag."""

    async def login(self, name: str, password: bytes | None, peer: str) -> Collection[str] | None:
        return ["impersonator"] if (name, password) in {("guest", b"new"), ("bob", b"b")} else None


class Rules(AuthBackend):
    """Grants ``guest`` and ``ann`` their permissions; another back end verifies their passwords."""

    async def login(self, name: str, password: bytes | None, peer: str) -> Collection[str] | None:
        return ["policymaker"] if name in {"guest", "ann"} and password is None else None

    async def may_enter(self, user: ExternalUser, vhost: str) -> bool:
        return user.tags >= {"policymaker"}

    async def may(
        self, user: ExternalUser, vhost: str, kind: str, name: str, permission: str
    ) -> bool:
        return name == "allowed"


@pytest.mark.parametrize(
    ("link", "logins", "tags", "reply"),
    [
        ((Directory(), None), {("guest", "new")}, {"administrator"}, m.QueueDeclareOk),
        ((None, Rules()), {("guest", "guest")}, {"administrator", "policymaker"}, m.ChannelClose),
        (
            (Directory(), Rules()),
            {("guest", "new")},
            {"impersonator", "policymaker"},
            m.ChannelClose,
        ),
    ],
    ids=["permissions here", "passwords here", "neither here"],
)
async def test_one_back_end_knows_passwords_and_another_what_users_may(
    quiet: Rig, link: Link, logins: set[tuple[str, str]], tags: set[str], reply: type[m.Method]
) -> None:
    access = use(quiet, link)
    tried = [("guest", "new"), ("guest", "guest"), ("bob", "b"), ("ann", "secret")]
    clients = {login: await logged_in(quiet, *login) for login in tried}

    said = {login: type(client.take()[-1]) for login, client in clients.items()}
    assert {login for login in said if said[login] is m.ConnectionOpenOk} == logins
    (client,) = (clients[login] for login in logins)
    sessions = [each.session for each in quiet.node.connections.readers.values()]
    (found,) = {each.user for each in sessions if each is not None}
    assert found.tags == tags
    client.send(1, m.ChannelOpen())
    client.take()
    assert type(await ask(quiet, client, m.QueueDeclare("allowed"))) is m.QueueDeclareOk
    assert type(await ask(quiet, client, m.QueueDeclare("other"))) is reply
    await ended(access)
