"""connection.update-secret: a client hands over another secret, mostly a token that lives longer.

As in RabbitMQ it is for back ends whose logins expire; users with passwords of the broker's own stay logged in
whatever it says. The answer comes when the user's back end has taken it; all else that the client sends goes on.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from leveret.amqp.errors import HardError
from leveret.amqp.methods import ConnectionUpdateSecret, ConnectionUpdateSecretOk
from leveret.amqp.spec import CONNECTION_UPDATE_SECRET
from leveret.broker.connection.states import ConnectionState, State
from leveret.broker.vhost.auth.auth_backends import Question

if TYPE_CHECKING:
    from collections.abc import Callable

    from leveret.actors.runtime.ref import Ref
    from leveret.actors.runtime.runtime import Runtime
    from leveret.amqp.fields import Method
    from leveret.broker.channel.session import Session
    from leveret.broker.connection.connection_log import ConnectionLog
    from leveret.broker.connection.connections import Connections


class Connection(Protocol):
    """A reader, as an update uses it."""

    state: ConnectionState
    session: Session | None
    connections: Connections[Any]
    log: ConnectionLog

    @property
    def ref(self) -> Ref: ...

    @property
    def runtime(self) -> Runtime: ...

    def send_method(self, method: Method) -> None: ...

    def fail(self, error: HardError) -> None: ...


def update_secret(connection: Connection, method: Method) -> None:
    """Hand the secret on, and answer when it is taken; NotAllowed closes the connection when it is not."""
    assert isinstance(method, ConnectionUpdateSecret)
    assert connection.session is not None
    access = connection.connections.access
    outcome = access.update_secret(connection.session.user, method.new_secret)
    _answer(connection, outcome, method.reason)


def _answer(connection: Connection, outcome: Callable[[], None], reason: str) -> None:
    if connection.state.now is not State.RUNNING:
        return
    try:
        outcome()
    except Question as question:
        again = partial(_answer, connection, outcome, reason)
        question.when_answered(partial(connection.runtime.run_as, connection.ref, again))
    except HardError as error:
        error.method = CONNECTION_UPDATE_SECRET
        connection.fail(error)
    else:
        connection.log.secret_updated(reason)
        connection.send_method(ConnectionUpdateSecretOk())
