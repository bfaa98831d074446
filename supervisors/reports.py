"""Reports: OTP's supervisor and progress reports as structured log records.

Contexts: ``start_error`` (a child did not start), ``child_terminated`` (a child ended),
``shutdown_error`` (a child ended of something else than the shutdown it was told), ``shutdown``
(the supervisor gives up). Every record carries ``extra`` fields, each with the prefix
``supervisor_`` so that none collides with the log record's own.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from leveret.core.log.loggers import logger

if TYPE_CHECKING:
    from leveret.supervisors.spec import Report

log = logger(__name__)

START_ERROR: Final = "start_error"
CHILD_TERMINATED: Final = "child_terminated"
SHUTDOWN_ERROR: Final = "shutdown_error"
SHUTDOWN: Final = "shutdown"
PROGRESS: Final = "progress"
_TEXT: Final = "supervisor report context=%s supervisor=%s child=%s reason=%s"
MAX_INTENSITY: Final = "reached_max_restart_intensity"


def wants_progress() -> bool:
    """Tell whether progress reports are logged; else they need not be made."""
    return log.isEnabledFor(logging.DEBUG)


def emit(report: Report, is_crash: bool = False) -> None:
    """Write ``report`` to the log, as an error unless it is progress or about a crash.

    The crashed actor logs its traceback; the reaction of its supervisor is ``info``. Progress is ``debug``. Erlang logs
    progress as ``info``, which its default level ``notice`` hides; here a broker with fifty thousand queues would write
    two lines for each.
    """
    level = logging.INFO if is_crash else logging.ERROR
    if report.context == PROGRESS:
        level = logging.DEBUG
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
