"""Calls to a queue from scripts; they wait for a queue that restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leveret.actors.runtime.signals import CallFailed
from leveret.amqp.errors import InternalError, SoftError
from leveret.broker.registry.registry import GONE
from leveret.broker.remote.mail_between_nodes import QueueGone
from leveret.broker.script import Ask, Steps, Until

if TYPE_CHECKING:
    from leveret.broker.registry.registry import QueueEntry


def ask_queue(entry: QueueEntry, request: object, raises: bool = True) -> Steps:
    """Call a queue (``broker/mail.py``) until an incarnation of it answers; return the answer.

    Raises:
        NotFound: the queue is deleted, has crashed for good, or lives on a node that is down.
        SoftError: the queue's answer; it is returned where ``raises`` is False.
    """
    while True:
        if not entry.is_running:
            if entry.state in GONE:
                raise entry.missing()
            yield Until(entry.when_running)
            continue
        assert entry.ref is not None
        answer = yield Ask(entry.ref, request, via=entry.delegate)
        if isinstance(answer, CallFailed):
            continue
        if raises and isinstance(answer, SoftError):
            raise answer
        return answer


def await_remote_deletion(entry: QueueEntry, is_sure: bool = True) -> Steps:
    """Wait until no node has the row of a queue of another node that was deleted there.

    Args:
        entry: the queue.
        is_sure: a durable queue whose node is lost meanwhile counts as not deleted.

    Raises:
        NotFound: that node may have the queue when it is back.
        InternalError: the deletion could not be written.
    """
    answer: Any = CallFailed("noconnection")
    if entry.delegate is not None:
        answer = yield Ask(entry.delegate, QueueGone(entry.name))
    if answer is False:
        raise InternalError()
    is_lost = isinstance(answer, CallFailed)
    if is_sure and is_lost and entry.durable and entry.state != "deleted":
        raise entry.missing()
