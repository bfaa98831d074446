"""Reports: OTP's supervisor and progress reports as structured log records.

Contexts: ``start_error`` (a child did not start), ``child_terminated`` (a child ended),
``shutdown_error`` (a child ended of something else than the shutdown it was told), ``shutdown``
(the supervisor gives up). Every record carries ``extra`` fields, each with the prefix
``supervisor_`` so that none collides with the log record's own.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from leveret.core.log.loggers import logger

if TYPE_CHECKING:
    from leveret.supervisors.spec import ChildSpec

log = logger(__name__)

START_ERROR: Final = "start_error"
CHILD_TERMINATED: Final = "child_terminated"
SHUTDOWN_ERROR: Final = "shutdown_error"
SHUTDOWN: Final = "shutdown"
PROGRESS: Final = "progress"
_TEXT: Final = "supervisor report context=%s supervisor=%s child=%s reason=%s"
MAX_INTENSITY: Final = "reached_max_restart_intensity"


@dataclass(slots=True)
class Report:
    """One report; ``count`` is there when it stands for that many dynamic children.

    ``supervisor`` is filled in by the driver: the supervisor's place in the tree. ``next`` says what follows the
    end of a child: which restart of how many, and when.
    """

    context: str
    reason: Any
    ref: Any
    spec: ChildSpec
    count: int | None = None
    supervisor: str = ""
    next: str = ""

    def offender(self) -> dict[str, Any]:
        """Return the child that the report is about, with the spec it was started from."""
        spec = self.spec
        subject = {"pid": self.ref} if self.count is None else {"nb_children": self.count}
        return {
            **subject,
            "id": spec.id,
            "start": spec.actor_class,
            "restart": spec.restart,
            "significant": spec.significant,
            "shutdown": spec.shutdown,
            "type": spec.type,
        }


@dataclass(slots=True)
class Restarted:
    """A child has been started again.

    Attributes:
        spec: the child's.
        ref: its new address.
        reason: of its predecessor's end; None if not known, for a start that was tried again.
        restarts: how often it has been started again in all.
        supervisor: the supervisor's place in the tree, filled in by the driver.
    """

    spec: ChildSpec
    ref: Any
    reason: Any
    restarts: int
    supervisor: str = ""


def wants_progress() -> bool:
    """Tell whether progress reports are logged; else they need not be made."""
    return log.isEnabledFor(logging.DEBUG)


def emit(report: Report) -> None:
    """Write ``report`` to the log, all but progress as an error.

    Progress is ``debug``: where Erlang logs it as ``info`` its default level, ``notice``, hides it,
    and a broker with fifty thousand queues would write two lines for each.
    """
    level = logging.DEBUG if report.context == PROGRESS else logging.ERROR
    if not log.isEnabledFor(level):
        return
    text, values = _TEXT, [report.context, report.supervisor, report.spec.id, report.reason]
    if report.next:
        text, values = f"{_TEXT} next=%s", [*values, report.next]
    log.log(
        level,
        text,
        *values,
        extra={
            "supervisor_name": report.supervisor,
            "supervisor_context": report.context,
            "supervisor_reason": report.reason,
            "supervisor_offender": report.offender(),
        },
    )
