"""Plain Thespian actors, each a process of its own, under a supervisor.

Thespian tells a parent that a child has ended and does no more. Here one of three processes is killed from outside:
the supervisor restarts it and the children started after it, in order.

    pip install leveret
    python examples/supervise_thespian.py
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from thespian.actors import Actor, ActorSystem

from leveret.supervisors.on_thespian import ThespianSupervisor
from leveret.supervisors.spec import ChildSpec, SupervisorSpec


class Stage(Actor):  # type: ignore[misc]  # Thespian has no types
    """One stage of a pipeline; here it only returns its name and process id."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def receiveMessage(self, message: Any, sender: Any) -> None:
        if message == "who":
            self.send(sender, (self.name, os.getpid()))


PIPELINE = SupervisorSpec(
    strategy="rest_for_one",
    intensity=3,
    period_s=10.0,
    children=tuple(ChildSpec(name, Stage, (name,)) for name in ("read", "parse", "write")),
)


def processes(system: ActorSystem, pipeline: ThespianSupervisor) -> dict[str, int]:
    """Ask all stages."""
    addresses = [address for _, address, _ in reversed(pipeline.which_children())]
    return dict(system.ask(address, "who", 10) for address in addresses)


def main() -> None:
    system = ActorSystem("multiprocTCPBase", {"Admin Port": 19019}, logDefs={"version": 1})
    try:
        pipeline = ThespianSupervisor.start(system, PIPELINE)
        before = processes(system, pipeline)

        old = pipeline.address_of("parse")
        os.kill(before["parse"], signal.SIGKILL)
        while pipeline.address_of("parse") in (None, old) or not pipeline.address_of("write"):
            time.sleep(0.01)

        for name, pid in processes(system, pipeline).items():
            print(name, "is as it was" if pid == before[name] else "was started again")
        print("ended:", pipeline.stop())
    finally:
        system.shutdown()


if __name__ == "__main__":
    main()
