"""Random supervisor scenarios, the same ones for the same seed.

They use all of the format of ``data/README.md``, apart from requests that the real supervisors answer
by the phase of a clock, and apart from where Leveret differs on purpose (``docs/supervision.md``):

* dynamic children that ignore a restart, or whose delayed restart fails;
* dynamic children that are terminated while a failed restart waits (OTP then counts them wrong);
* under supervisor2, delayed dynamic children (shown as if they ran), and children that had shut down of
  themselves a moment before they were told to (reported).
"""

from __future__ import annotations

import random
from typing import Any

from rigs.supervision.scenario_files import SIMPLE, Scenario

GROUPS = ("one_for_one", "one_for_all", "rest_for_one")
REASONS = ("boom", "normal", "shutdown", "kill", ["shutdown", "x"], ["shutdown", "restart"])
IDS = "abcde"
RACING_REASONS = ("boom", "normal")  # in bursts of supervisor2
DELAY_MS = 500  # of a delayed restart, far more than an action takes
SLEEP_MS = 600  # until it is over; three of them and some actions do not come near a multiple of it


def generated(seed: int) -> Scenario:
    """Make the scenario of this seed, without a trace."""
    return _Generator(random.Random(seed)).scenario()


class _Generator:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        pick = rng.choice
        self.module = pick(("supervisor", "supervisor", "supervisor2"))
        self.is_otp = self.module == "supervisor"
        self.is_simple = rng.random() < 0.25
        self.strategy = SIMPLE if self.is_simple else pick(GROUPS)
        self.below: list[str] = []  # ids of children of children
        self.is_below = False  # so that the oracle, which asks the root, would not know it is busy
        self.auto_shutdown = "never"
        if self.is_otp and rng.random() < 0.5:
            self.auto_shutdown = pick(("any_significant", "all_significant", "all_significant"))
        self.has_trees = not self.is_simple and rng.random() < 0.2
        may_delay = not self.is_otp and self.strategy == "one_for_one" and not self.has_trees
        self.has_delays = may_delay and rng.random() < 0.3

    def scenario(self) -> Scenario:
        rng = self.rng
        flags = {
            "strategy": self.strategy,
            "intensity": rng.randrange(2 if self.has_delays else 6),
            "period": 3600,
            "auto_shutdown": self.auto_shutdown,
        }
        count = 1 if self.is_simple else rng.choice((0, 1, 2, 3, 3, 4, 5))
        children = [self.child(IDS[n]) for n in range(count)]
        if self.has_trees:
            children = [self.tree(row) if rng.random() < 0.6 else row for row in children]
        if rng.random() < 0.03:
            self.spoil(flags, children)
        if self.has_delays:
            actions = self.delayed_actions()
        else:
            actions = [self.action() for _ in range(rng.randint(1, 11))]
        return {"module": self.module, "flags": flags, "children": children, "actions": actions}

    def child(self, child_id: str) -> dict[str, Any]:
        rng = self.rng
        kinds = ["permanent", "transient", "transient", "temporary"]
        if not self.is_otp:
            kinds.append("intrinsic")
        restart: Any = rng.choice(kinds)
        if self.has_delays and restart != "temporary":
            restart = [restart, DELAY_MS / 1000]
        may_matter = self.auto_shutdown != "never" and restart in ("transient", "temporary")
        shutdown = rng.choice((60, 500, "infinity", "brutal_kill"))
        on_shutdown = rng.choice(("no", "no", "no", "wrong", *(() if self.is_below else ("stub",))))
        if on_shutdown == "stub" and shutdown in (500, "infinity"):
            shutdown = 60  # it will have to be waited for
        return {
            "id": child_id,
            "restart": restart,
            "significant": may_matter and rng.random() < 0.6,
            "shutdown": shutdown,
            "type": rng.choice(("worker", "worker", "supervisor")),
            "starts": self.starts(restart),
            "on_shutdown": on_shutdown,
        }

    def tree(self, row: dict[str, Any]) -> dict[str, Any]:
        """Let a child be a supervisor with children; they are named after it."""
        rng = self.rng
        inner = _Generator(rng)
        inner.module, inner.is_otp = self.module, self.is_otp
        inner.is_simple = inner.has_delays = False
        inner.is_below = True
        inner.auto_shutdown = "never"
        if self.is_otp and rng.random() < 0.3:
            inner.auto_shutdown = rng.choice(("any_significant", "all_significant"))
        flags = {
            "strategy": rng.choice(GROUPS),
            "intensity": rng.randrange(3),
            "period": 3600,
            "auto_shutdown": inner.auto_shutdown,
        }
        children = [inner.child(f"{row['id']}{n}") for n in range(rng.randint(1, 3))]
        tree = {"module": self.module, "flags": flags, "children": children}
        self.below += [child["id"] for child in children]
        return {**row, "type": "supervisor", "shutdown": "infinity", "starts": [], "tree": tree}

    def starts(self, restart: Any) -> list[str]:
        rng = self.rng
        if self.has_delays:
            return []  # where a delayed restart fails, Leveret differs
        # Of these, 'ign' at a restart is where simple_one_for_one of OTP 25 goes wrong.
        later = (
            ("ok", "ok", "err", "raise") if self.is_simple else ("ok", "ok", "err", "raise", "ign")
        )
        first = rng.choices(("ok", "ign", "err", "raise"), (40, 2, 1, 1))[0]
        if self.is_simple and restart != "temporary" and first == "ign":
            first = "ok"
        return [first, *rng.choices(later, k=rng.randrange(5))]

    def spoil(self, flags: dict[str, Any], children: list[dict[str, Any]]) -> None:
        rng = self.rng
        which = rng.randrange(6)
        if which == 0:
            flags["intensity"] = -1
        elif which == 1:
            flags["period"] = 0
        elif which == 2:
            flags["strategy"] = "one_for_two"
        elif which == 3:
            children.extend([self.child("a"), self.child("a")])
        elif children:
            bad = {"restart": "always"} if which == 4 else {"shutdown": -1}
            rng.choice(children).update(bad)

    def subject(self) -> Any:
        rng = self.rng
        if self.is_simple:
            return rng.randrange(6) if rng.random() < 0.97 else "a"
        if self.has_trees:  # addresses by number would be those of supervisors, too
            return rng.choice(IDS[:4])
        return rng.choice(IDS[:4]) if rng.random() < 0.95 else rng.randrange(5)

    def action(self) -> list[Any]:
        if not self.has_trees and self.rng.random() < 0.2:
            return ["burst", self.burst(self.rng.randint(2, 5))]
        return self.step()

    def burst(self, length: int) -> list[Any]:
        reasons = REASONS if self.is_otp else RACING_REASONS
        steps = [self.step(reasons) for _ in range(length)]
        if self.is_simple and any(step[0] == "do" for step in steps):
            steps = [step for step in steps if step[0] != "terminate_child"]
        return steps

    def step(self, reasons: tuple[Any, ...] = REASONS) -> list[Any]:
        rng = self.rng
        name = rng.choices(
            ("do", "start_child", "terminate_child", "restart_child", "delete_child"),
            (10, 7 if self.is_simple else 2, 2, 2, 1),
        )[0]
        if name == "do" and self.has_trees:
            return [name, rng.choice(self.below or IDS), rng.choice(reasons)]
        if name == "do":
            return [name, self.subject(), rng.choice(reasons)]
        if name == "start_child":
            return [name, self.new_child()]
        return [name, self.subject()]

    def new_child(self) -> Any:
        rng = self.rng
        if self.is_simple:
            return rng.choice(([], ["x"], ["y"], ["z"]))
        return [] if rng.random() < 0.02 else self.child(rng.choice(IDS))

    def delayed_actions(self) -> list[Any]:
        """Crashes, with enough time now and then for delayed restarts."""
        rng = self.rng
        actions: list[Any] = []
        for _ in range(rng.randint(1, 3)):
            ends = [["do", self.subject(), rng.choice(REASONS)] for _ in range(rng.randint(1, 2))]
            actions += [*ends, ["sleep", SLEEP_MS]]
        return actions
