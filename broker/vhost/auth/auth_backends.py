"""Auth back ends: external services that authenticate and authorize users, and take time to answer.

An *auth back end* answers four questions in coroutines (``AuthBackend``). The broker asks in its own turns, which do
not wait: if it has no answer yet, it raises ``Question``. The reader (during the handshake) or the channel (with a
method or a run of publishes) then stops, and repeats the same step when the answer has come. That works because
permissions are checked before anything is changed.

Answers are cached for ``cache_s``, counted from the first one in the cache; then all of them are dropped, and cached
routes with them. Equal questions are asked once. A back end that fails, or takes longer than ``timeout_s``, refuses;
that refusal is not cached. ``QUESTIONS_MAX`` questions may be open; more are refused.

Logins go through the chain of back ends in the settings, in order, as in RabbitMQ: the first that accepts user and
password decides, and it alone is asked for the user's permissions. A link of the chain may have two back ends, one to
authenticate and one to authorize. The link refuses a user if either of them does.

Differs from RabbitMQ: where the broker itself authorizes a user, the tags of the other back end are ignored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from leveret.amqp.errors import NotAllowed
from leveret.broker.script import Steps, Until
from leveret.broker.vhost.auth.access import Access, LoginRefused, User, refused_topic
from leveret.core.log.loggers import logger
from leveret.metadata.tables import UserRow

if TYPE_CHECKING:
    from leveret.core.clock import Clock

log = logger(__name__)

Link: TypeAlias = "tuple[AuthBackend | None, AuthBackend | None]"

QUESTIONS_MAX: Final = 1_000
ANSWERS_MAX: Final = 10_000


class AuthBackend:
    """The base of back ends: it refuses everything.

    All answers are given within the setting ``auth.timeout_s``; an exception is a refusal, and is logged.
    """

    async def login(self, name: str, password: bytes | None, peer: str) -> Collection[str] | None:
        """Return the tags of a user; None: refused.

        Args:
            name: of the user.
            password: None where a certificate, or another back end, has proved who the client is.
            peer: the address of the client.
        """
        return None

    async def may_enter(self, user: ExternalUser, vhost: str) -> bool:
        """Return whether a user may open connections to a vhost."""
        return False

    async def may(
        self, user: ExternalUser, vhost: str, kind: str, name: str, permission: str
    ) -> bool:
        """Return whether a user may ``configure``, ``write`` or ``read`` a ``queue`` or ``exchange``."""
        return False

    async def may_topic(
        self, user: ExternalUser, vhost: str, exchange: str, permission: str, routing_key: str
    ) -> bool:
        """Return whether a user may ``write`` or ``read`` with this key at a topic exchange."""
        return False

    async def update_secret(self, user: ExternalUser, secret: bytes) -> bool:
        """Take a new secret of an open connection; return whether it is accepted.

        Permissions are asked anew afterwards. By default it is accepted and ignored, for logins that do not expire.
        """
        return True


class ExternalUser(User):
    """A user that a back end has logged in.

    Attributes:
        backend: that knows the user.
        peer: the address of the client.
    """

    __slots__ = ("backend", "peer")

    def __init__(self, name: str, tags: Collection[str], backend: AuthBackend, peer: str) -> None:
        super().__init__(UserRow(name, b"", tags=list(tags)))
        self.backend = backend
        self.peer = peer


class Question(Exception):  # noqa: N818 - it is not an error
    """A back end is being asked; ``when_answered`` calls back when to try again."""

    def __init__(self) -> None:
        super().__init__("a back end is being asked")
        self._waiting: list[Callable[[], None]] | None = []

    @property
    def is_answered(self) -> bool:
        return self._waiting is None

    def when_answered(self, callback: Callable[[], None]) -> None:
        if self._waiting is None:
            callback()
        else:
            self._waiting.append(callback)

    def resume(self, callback: Callable[[Any], None]) -> None:
        """Do the same for a script, which waits with ``Until``."""
        self.when_answered(lambda: callback(None))

    def answered(self) -> None:
        """The answer is there."""
        waiting, self._waiting = self._waiting or [], None
        for callback in waiting:
            callback()


def granted(check: Callable[[], object]) -> Steps:
    """Check a permission as often as a back end must be asked.

    It is for a script that would ask another question if it began again: a server-made queue name differs each time.
    """
    while True:
        try:
            check()
        except Question as question:
            yield Until(question.resume)
        else:
            return


async def finished(login: Callable[[], User]) -> User:
    """Return the user of a login that is under way; LoginRefused: it is refused."""
    while True:
        try:
            return login()
        except Question as question:
            answered = asyncio.Event()
            question.when_answered(answered.set)
            await answered.wait()


class Login(Question):
    """A login that is under way; ``outcome`` is the user, or why it is refused."""

    outcome: User | LoginRefused

    def user(self) -> User:
        """Return the user.

        Raises:
            Question: it is not known yet.
            LoginRefused: all back ends have refused.
        """
        if not self.is_answered:
            raise self
        if isinstance(self.outcome, LoginRefused):
            raise self.outcome
        return self.outcome


class SecretUpdate(Question):
    """A new secret that a back end is checking."""

    refusal: NotAllowed | None = None

    def outcome(self) -> None:
        """Return when the secret is taken.

        Raises:
            Question: that is not known yet.
            NotAllowed: it is refused.
        """
        if not self.is_answered:
            raise self
        if self.refusal is not None:
            raise self.refusal


class ExternalAccess(Access):
    """Access with users of back ends beside the broker's own.

    Args:
        chain: in the order of the settings, the authenticating and the authorizing back end; None stands for the
            broker itself.
        cache_s: how long answers are kept.
        timeout_s: that a back end has for an answer.
    """

    def __init__(
        self,
        chain: Sequence[Link],
        clock: Clock,
        cache_s: float,
        timeout_s: float,
        loopback_users: Iterable[str] = ("guest",),
    ) -> None:
        super().__init__(loopback_users)
        self._chain = chain
        self._clock = clock
        self._cache_s = cache_s
        self._timeout_s = timeout_s
        self._answers: dict[tuple[Any, ...], bool] = {}
        self._failed: set[tuple[Any, ...]] = set()
        self._open: dict[tuple[Any, ...], Question] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_timer = False

    def log_in(
        self, name: str, password: bytes | None, mechanism: str, from_loopback: bool, peer: str
    ) -> Callable[[], User]:
        login = Login()
        self._spawn(self._log_in(login, name, password, mechanism, from_loopback, peer))
        return login.user

    def update_secret(self, user: User, secret: bytes) -> Callable[[], None]:
        if not isinstance(user, ExternalUser):
            return super().update_secret(user, secret)
        update = SecretUpdate()
        if len(self._tasks) < QUESTIONS_MAX:
            self._spawn(self._update_secret(update, user, secret))
        else:
            log.error("back end not asked, too many questions are open user=%s", user.name)
            update.refusal = NotAllowed("Secret update failed")
            update.answered()
        return update.outcome

    async def _update_secret(self, update: SecretUpdate, user: ExternalUser, secret: bytes) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                is_taken = await user.backend.update_secret(user, secret)
        except Exception as error:  # noqa: BLE001 - a plug-in's; whatever it is, the secret is refused
            _log_failure(user.backend, user.name, error)
            update.refusal = NotAllowed("Secret update failed")
        else:
            if is_taken:
                self._forget_user(user)
            else:
                update.refusal = NotAllowed("New secret was refused by one of the backends")
        finally:
            update.answered()

    def _forget_user(self, user: ExternalUser) -> None:
        """Drop all answers about a user, which are asked anew."""
        whose = (user.backend, user.name)
        self._answers = {key: each for key, each in self._answers.items() if key[:2] != whose}
        self.epoch += 1

    def check_vhost(self, user: User, vhost: str) -> None:
        if not isinstance(user, ExternalUser):
            super().check_vhost(user, vhost)
        elif not self._allowed(user, "may_enter", vhost):
            raise NotAllowed(f"access to vhost '{vhost}' refused for user '{user.name}'")

    def may(self, user: User, vhost: str, kind: str, name: str, permission: str) -> bool:
        if not isinstance(user, ExternalUser):
            return super().may(user, vhost, kind, name, permission)
        return self._allowed(user, "may", vhost, kind, name, permission)

    def check_topic(
        self, user: User, vhost: str, exchange: str, key: bytes, permission: str
    ) -> float:
        if not isinstance(user, ExternalUser):
            return super().check_topic(user, vhost, exchange, key, permission)
        text = key.decode("utf-8", "surrogateescape")
        if not self._allowed(user, "may_topic", vhost, exchange, permission, text):
            raise refused_topic(user, vhost, exchange, key)
        return 0.0

    def close(self) -> None:
        """Cancel the open questions: the broker stops."""
        for task in self._tasks:
            task.cancel()

    async def _log_in(
        self,
        login: Login,
        name: str,
        password: bytes | None,
        mechanism: str,
        from_loopback: bool,
        peer: str,
    ) -> None:
        login.outcome = LoginRefused(mechanism, f"user '{name}' - invalid credentials")
        try:
            for link in self._chain:
                try:
                    user = await self._user(link, name, password, mechanism, peer)
                    self.check_address(name, mechanism, from_loopback)
                except LoginRefused as refused:
                    login.outcome = refused
                else:
                    login.outcome = user
                    break
        finally:
            login.answered()

    async def _user(
        self, link: Link, name: str, password: bytes | None, mechanism: str, peer: str
    ) -> User:
        knows_password, knows_permissions = link
        user = await self._asked(knows_password, name, password, mechanism, peer)
        if knows_permissions is knows_password:
            return user
        permitted = await self._asked(knows_permissions, name, None, mechanism, peer)
        if knows_permissions is None:
            return permitted
        return ExternalUser(name, user.tags | permitted.tags, knows_permissions, peer)

    async def _asked(
        self,
        backend: AuthBackend | None,
        name: str,
        password: bytes | None,
        mechanism: str,
        peer: str,
    ) -> User:
        """Ask a back end for the user; without a password if another back end or a certificate has proved it."""
        if backend is None:
            return super().log_in(name, password, mechanism, True, peer)()
        try:
            async with asyncio.timeout(self._timeout_s):
                tags = await backend.login(name, password, peer)
        except Exception as error:  # noqa: BLE001 - a plug-in's; whatever it is, the login is refused
            _log_failure(backend, name, error)
            raise LoginRefused(mechanism, f"user '{name}' - back end failed") from None
        if tags is None:
            raise LoginRefused(mechanism, f"user '{name}' - refused by a back end")
        return ExternalUser(name, tags, backend, peer)

    def _allowed(self, user: ExternalUser, method: str, *what: str) -> bool:
        key = (user.backend, user.name, user.tags, user.peer, method, *what)
        answer = self._answers.get(key)
        if answer is not None:
            return answer
        if key in self._failed:
            self._failed.discard(key)
            return False
        question = self._open.get(key)
        if question is None:
            if len(self._open) >= QUESTIONS_MAX:
                log.error("back end not asked, too many questions are open user=%s", user.name)
                return False
            question = self._open[key] = Question()
            self._spawn(self._ask(key, user, method, what))
        raise question

    async def _ask(
        self, key: tuple[Any, ...], user: ExternalUser, method: str, what: tuple[str, ...]
    ) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = bool(await getattr(user.backend, method)(user, *what))
        except Exception as error:  # noqa: BLE001 - a plug-in's; whatever it is, access is refused
            _log_failure(user.backend, user.name, error)
            self._failed.add(key)
        else:
            self._keep(key, answer)
        finally:
            self._open.pop(key).answered()

    def _keep(self, key: tuple[Any, ...], answer: bool) -> None:
        if len(self._answers) >= ANSWERS_MAX:
            self._answers.clear()
        self._answers[key] = answer
        if not self._has_timer:
            self._has_timer = True
            self._clock.call_later(self._cache_s, self._forget)

    def _forget(self) -> None:
        self._has_timer = False
        self._answers.clear()
        self._failed.clear()
        self.epoch += 1

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _log_failure(backend: AuthBackend, user: str, error: Exception) -> None:
    reason = str(error) or type(error).__name__
    log.error("back end failed backend=%s user=%s error=%s", type(backend).__name__, user, reason)
