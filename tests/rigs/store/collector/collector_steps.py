"""The collector's tasks, driven step by step: a test chooses which goes on, and when."""

from __future__ import annotations

import random

from leveret.core.errors import StoreError
from leveret.msg_store.gc.collector import Collector, Job, Moving, Task, Wait


class CollectorSteps:
    """Drives a collector; ``step`` brings one task to its next point."""

    def __init__(self, collector: Collector, rng: random.Random) -> None:
        self.collector = collector
        self.rng = rng
        self.waits: dict[Task, Job | Moving | Wait] = {}
        self.moved: set[Moving] = set()
        self.points: list[str] = []
        self.endless: set[Wait] = set()  # what does not come

    def look(self) -> None:
        """Let the collector begin what there is to do."""
        while (task := self.collector.next_task()) is not None:
            self._advance(task)

    @property
    def ready(self) -> list[Task]:
        """The tasks that can go on."""
        return [task for task, wait in self.waits.items() if self._has_come(wait)]

    def _has_come(self, wait: Job | Moving | Wait) -> bool:
        if isinstance(wait, Moving):
            return wait in self.moved
        return not (isinstance(wait, Wait) and wait in self.endless)

    def step(self) -> bool:
        """Let one task, if any can, do one step; return whether one could."""
        ready = self.ready
        if ready:
            self._step(self.rng.choice(ready))
        return bool(ready)

    def finish_removals(self) -> None:
        """Finish unlinks that have begun; in between, files and tables differ."""
        for task in list(self.waits):
            while isinstance(wait := self.waits.get(task), Job) and wait.steps.__name__ == "unlink":
                self._step(task)

    def _step(self, task: Task) -> None:
        wait = self.waits[task]
        if not isinstance(wait, Job):
            self._point(wait)
            self._advance(task)
            return
        try:
            self._point(next(wait.steps))
        except StopIteration:
            self._advance(task)
        except (OSError, EOFError, StoreError) as error:
            self._advance(task, error)

    def _point(self, what: str | Moving | Wait) -> None:
        if isinstance(what, Wait):
            self.points.append(what.name)
        else:
            self.points.append(what if isinstance(what, str) else "moved")

    def _advance(self, task: Task, error: Exception | None = None) -> None:
        self.waits.pop(task, None)
        try:
            wait = next(task) if error is None else task.throw(error)
        except StopIteration:
            return
        self.waits[task] = wait
        if isinstance(wait, Moving):
            wait.when_done(lambda: self.moved.add(wait))

    def close(self) -> None:
        """End it all as the process ends."""
        for task, wait in self.waits.items():
            if isinstance(wait, Job):
                wait.steps.close()
            task.close()
        self.waits.clear()
