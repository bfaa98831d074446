"""397 scenarios end token by token as on Erlang's and RabbitMQ's supervisors.

Once the kernel is played with scripted children, once supervisors and children are real actors on
virtual time.
"""

from __future__ import annotations

from typing import Any

from supervisors.player import FakeDriver, Plan, Player
from supervisors.stage import Stage


def test_the_kernel_gives_the_recorded_trace(
    scenario: dict[str, Any],
) -> None:
    def start_of(row: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
        return Plan(row["starts"], row["on_shutdown"]), ()

    trace = Player(scenario, FakeDriver, start_of).play()

    assert trace == scenario["trace"]


def test_real_actors_give_the_recorded_trace(scenario: dict[str, Any], stage: Stage) -> None:
    def start_of(row: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
        return stage.actor_class, (stage, row["id"], Plan(row["starts"], row["on_shutdown"]))

    trace = Player(scenario, stage.boot_with, start_of).play()

    assert trace == scenario["trace"]
    stage.close()
    assert stage.runtime.actor_count == 0
    assert stage.clock.pending_count == 0
