"""Numbers about supervision, for whatever collects metrics.

::

    metrics = Metrics()
    tree = Tree("shop", on_report=metrics.on_report, on_restart=metrics.on_restart)
    ...
    metrics.restarts  # {"shop > prices": 2}
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from leveret.supervisors.reports import CHILD_TERMINATED, MAX_INTENSITY, SHUTDOWN, START_ERROR
from leveret.supervisors.tree_view import SEPARATOR

if TYPE_CHECKING:
    from leveret.supervisors.spec import Report, Restarted


class Metrics:
    """Counts the reports and restarts of the supervisors that have its methods as hooks.

    Attributes:
        failures: ends of children that were reported, by path.
        restarts: restarts, by path.
        start_failures: starts that failed, by path.
        overruns: how often each supervisor gave up because of its intensity, by path.
    """

    def __init__(self) -> None:
        self.failures: Counter[str] = Counter()
        self.restarts: Counter[str] = Counter()
        self.start_failures: Counter[str] = Counter()
        self.overruns: Counter[str] = Counter()

    def on_report(self, report: Report) -> None:
        path = SEPARATOR.join((report.supervisor, str(report.spec.id)))
        if report.context == CHILD_TERMINATED:
            self.failures[path] += 1
        elif report.context == START_ERROR:
            self.start_failures[path] += 1
        elif report.context == SHUTDOWN and report.reason == MAX_INTENSITY:
            self.overruns[report.supervisor] += 1

    def on_restart(self, restarted: Restarted) -> None:
        self.restarts[SEPARATOR.join((restarted.supervisor, str(restarted.spec.id)))] += 1
