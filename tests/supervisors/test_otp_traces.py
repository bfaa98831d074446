"""The kernel answers 397 scenarios token by token as Erlang's and RabbitMQ's supervisors did."""

from __future__ import annotations

from typing import Any


def test_the_kernel_gives_the_recorded_trace(
    scenario: dict[str, Any], player: Any, make_fake: Any, plan: Any
) -> None:
    def start_of(row: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
        return plan(row["starts"], row["on_shutdown"]), ()

    trace = player(scenario, make_fake, start_of).play()

    assert trace == scenario["trace"]
