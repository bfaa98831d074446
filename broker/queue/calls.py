"""Calls to a queue from scripts; they wait for a queue that restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING

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


def await_gone_there(entry: QueueEntry) -> Steps:
    """Wait until no node has the row of a deleted queue of another node; return whether that node has said so.

    Raises:
        InternalError: the deletion could not be written.
    """
    if entry.delegate is None:
        return False
    answer = yield Ask(entry.delegate, QueueGone(entry.name))
    if answer is False:
        raise InternalError()
    return not isinstance(answer, CallFailed)


def await_deleted_there(entry: QueueEntry) -> Steps:
    """Wait until no node has the row of a queue that was deleted on another one.

    Raises:
        NotFound: that node was lost meanwhile, and may have the queue when it is back.
        InternalError: the deletion could not be written.
    """
    is_gone = yield from await_gone_there(entry)
    if not is_gone and entry.durable and entry.state != "deleted":
        raise entry.missing()
