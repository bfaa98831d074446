"""Cases: how children are stopped, significant children."""

from __future__ import annotations

from rigs.supervision.scenario_files import SIMPLE
from supervisors.rules.notation import (
    Case,
    burst,
    case,
    child,
    delete,
    do,
    restart,
    start,
    terminate,
)

ANY, ALL = "any_significant", "all_significant"

STOPPING: list[Case] = [
    case(
        42,
        "four children",
        ["a", "b", "c", "d"],
        [],
        "+a +b +c +d [d=up,c=up,b=up,a=up]4/4/0/4 -d -c -b -a SUPEXIT:shutdown",
    ),
    case(
        42,
        "after an overrun",
        ["a", "b", "c"],
        [do("b")],
        "+a +b +c [c=up,b=up,a=up]3/3/0/3 "
        "#do -b R:child_terminated:b R:shutdown:b -c -a SUPEXIT:shutdown",
        intensity=0,
    ),
    case(
        (43, 46),
        "one obeys nothing",
        ["a", child("b", on_shutdown="stub", shutdown=60), "c"],
        [],
        "+a +b +c [c=up,b=up,a=up]3/3/0/3 -c R:shutdown_error:b -a SUPEXIT:shutdown",
    ),
    case(
        (43, 46),
        "terminated by request",
        [child("a", on_shutdown="stub", shutdown=60)],
        [terminate("a"), restart("a")],
        "+a [a=up]1/1/0/1 "
        "#term R:shutdown_error:a =ok [a=undefined]1/0/0/1 "
        "#restart +a =ok,pid [a=up]1/1/0/1 "
        "R:shutdown_error:a SUPEXIT:shutdown",
    ),
    case(
        45,
        "one that would have obeyed",
        ["a", child("b", shutdown="brutal_kill"), "c"],
        [],
        "+a +b +c [c=up,b=up,a=up]3/3/0/3 -c -a SUPEXIT:shutdown",
    ),
    *(
        case(
            46,
            f"a {kind} child ends of something else",
            [child("a", kind, on_shutdown="wrong")],
            [terminate("a")],
            "+a [a=up]1/1/0/1 "
            "#term -a R:shutdown_error:a =ok [a=undefined]1/0/0/1 "
            "SUPEXIT:shutdown",
        )
        for kind in ("permanent", "transient")
    ),
    case(
        46,
        "a temporary child ends of something else",
        [child("a", "temporary", on_shutdown="wrong")],
        [terminate("a")],
        "+a [a=up]1/1/0/1 #term -a R:shutdown_error:a =ok []0/0/0/0 SUPEXIT:shutdown",
    ),
    case(
        48,
        "it failed before the others were stopped",
        ["a", child("b", "transient"), "c"],
        [burst(do("c"), do("b"))],
        "+a +b +c [c=up,b=up,a=up]3/3/0/3 "
        "#burst -c -b R:child_terminated:c R:shutdown_error:b -a +a +b +c [c=up,b=up,a=up]3/3/0/3 "
        "-c -b -a SUPEXIT:shutdown",
        strategy="one_for_all",
    ),
    case(
        48,
        "it ended normally before",
        ["a", child("b", "transient"), "c"],
        [burst(do("c"), do("b", "normal"))],
        "+a +b +c [c=up,b=up,a=up]3/3/0/3 "
        "#burst -c -b R:child_terminated:c -a +a +b +c [c=up,b=up,a=up]3/3/0/3 "
        "-c -b -a SUPEXIT:shutdown",
        strategy="one_for_all",
    ),
    case(
        48,
        "it was dead before terminate_child",
        ["a", "b"],
        [burst(terminate("b"), do("b"))],
        "+a +b [b=up,a=up]2/2/0/2 "
        "#burst -b R:shutdown_error:b =ok [b=undefined,a=up]2/1/0/2 "
        "-a SUPEXIT:shutdown",
    ),
    case(
        49,
        "all at once",
        [child("a", shutdown=500)],
        [start([]), start([]), start([])],
        "[]1/0/0/0 "
        "#startc +a =ok,pid [undefined=up]1/1/0/1 "
        "#startc +a =ok,pid [undefined=up,undefined=up]1/2/0/2 "
        "#startc +a =ok,pid [undefined=up,undefined=up,undefined=up]1/3/0/3 "
        "-a -a -a SUPEXIT:shutdown",
        strategy=SIMPLE,
    ),
    case(
        49,
        "one report for a reason",
        [child("a", on_shutdown="wrong")],
        [start([]), start([])],
        "[]1/0/0/0 "
        "#startc +a =ok,pid [undefined=up]1/1/0/1 "
        "#startc +a =ok,pid [undefined=up,undefined=up]1/2/0/2 "
        "-a -a R:shutdown_error:a SUPEXIT:shutdown",
        strategy=SIMPLE,
    ),
    case(
        49,
        "the survivors are killed",
        [child("a", on_shutdown="stub", shutdown=60)],
        [start([]), start([])],
        "[]1/0/0/0 "
        "#startc +a =ok,pid [undefined=up]1/1/0/1 "
        "#startc +a =ok,pid [undefined=up,undefined=up]1/2/0/2 "
        "R:shutdown_error:a SUPEXIT:shutdown",
        strategy=SIMPLE,
    ),
    case(
        (50, 42),
        "the parent says shutdown",
        ["a", "b"],
        [],
        "+a +b [b=up,a=up]2/2/0/2 -b -a SUPEXIT:shutdown",
    ),
    case(
        51,
        "requests in a row",
        ["a", "b"],
        [burst(terminate("b"), restart("b"), terminate("b"), delete("b"), start("b"))],
        "+a +b [b=up,a=up]2/2/0/2 "
        "#burst -b +b -b +b =ok =ok,pid =ok =ok =ok,pid [b=up,a=up]2/2/0/2 "
        "-b -a SUPEXIT:shutdown",
    ),
    case(
        51,
        "they fail when the supervisor ends",
        ["a", "b"],
        [burst(terminate("b"), do("a"), restart("b"))],
        "+a +b [b=up,a=up]2/2/0/2 "
        "#burst -a -b R:child_terminated:a R:shutdown:a =ok callfail SUPEXIT:shutdown",
        intensity=0,
    ),
]

SIGNIFICANT: list[Case] = [
    case(
        56,
        "a transient one ends normally",
        ["a", child("b", "transient", significant=True), "c"],
        [do("b", "normal")],
        "+a +b +c [c=up,b=up,a=up]3/3/0/3 #do -b -c -a SUPEXIT:shutdown",
        auto_shutdown=ANY,
    ),
    case(
        56,
        "a temporary one fails",
        ["a", child("b", "temporary", significant=True), "c"],
        [do("b")],
        "+a +b +c [c=up,b=up,a=up]3/3/0/3 #do -b R:child_terminated:b -c -a SUPEXIT:shutdown",
        auto_shutdown=ANY,
    ),
    case(
        56,
        "another one ends",
        [child("a", "transient", significant=True), child("b", "transient")],
        [do("b", "normal")],
        "+a +b [b=up,a=up]2/2/0/2 #do -b [b=undefined,a=up]2/1/0/2 -a SUPEXIT:shutdown",
        auto_shutdown=ANY,
    ),
    case(
        56,
        "the first of two",
        [child("a", "transient", significant=True), child("b", "temporary", significant=True), "c"],
        [do("b")],
        "+a +b +c [c=up,b=up,a=up]3/3/0/3 #do -b R:child_terminated:b -c -a SUPEXIT:shutdown",
        auto_shutdown=ANY,
    ),
    case(
        57,
        "one after the other",
        [child("a", "transient", significant=True), child("b", "temporary", significant=True), "c"],
        [do("a", "normal"), do("b")],
        "+a +b +c [c=up,b=up,a=up]3/3/0/3 "
        "#do -a [c=up,b=up,a=undefined]3/2/0/3 "
        "#do -b R:child_terminated:b -c SUPEXIT:shutdown",
        auto_shutdown=ALL,
    ),
    case(
        57,
        "dynamic children",
        [child("a", "temporary", significant=True)],
        [start([]), start([]), do(0), do(0)],
        "[]1/0/0/0 "
        "#startc +a =ok,pid [undefined=up]1/1/0/1 "
        "#startc +a =ok,pid [undefined=up,undefined=up]1/2/0/2 "
        "#do -a R:child_terminated:a [undefined=up]1/1/0/1 "
        "#do -a R:child_terminated:a SUPEXIT:shutdown",
        strategy=SIMPLE,
        auto_shutdown=ALL,
    ),
    case(
        58,
        "it failed",
        [child("a", "transient", significant=True)],
        [do("a")],
        "+a [a=up]1/1/0/1 #do -a R:child_terminated:a +a [a=up]1/1/0/1 -a SUPEXIT:shutdown",
        auto_shutdown=ANY,
    ),
    case(
        59,
        "terminated by request",
        [child("a", "transient", significant=True)],
        [terminate("a"), restart("a")],
        "+a [a=up]1/1/0/1 "
        "#term -a =ok [a=undefined]1/0/0/1 "
        "#restart +a =ok,pid [a=up]1/1/0/1 "
        "-a SUPEXIT:shutdown",
        auto_shutdown=ANY,
    ),
    case(
        59,
        "terminated by request, beside others",
        [child("a", "transient", significant=True), "b", child("c", "temporary", significant=True)],
        [terminate("c"), terminate("a")],
        "+a +b +c [c=up,b=up,a=up]3/3/0/3 "
        "#term -c =ok [b=up,a=up]2/2/0/2 "
        "#term -a =ok [b=up,a=undefined]2/1/0/2 "
        "-b SUPEXIT:shutdown",
        auto_shutdown=ANY,
    ),
    *(
        case(
            59,
            f"stopped with its group, {strategy}",
            ["a", child("b", "temporary", significant=True)],
            [do("a")],
            "+a +b [b=up,a=up]2/2/0/2 "
            "#do -a R:child_terminated:a -b +a [a=up]1/1/0/1 "
            "-a SUPEXIT:shutdown",
            auto_shutdown=ANY,
            strategy=strategy,
        )
        for strategy in ("one_for_all", "rest_for_one")
    ),
]

CASES = [*STOPPING, *SIGNIFICANT]
