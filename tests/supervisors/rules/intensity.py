"""Cases: how often children may be restarted, and which requests are served between attempts."""

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
    sleep,
    start,
    terminate,
)

CASES: list[Case] = [
    case(
        33,
        "as many as it says",
        ["a", "b"],
        [do("a"), do("a")],
        "+a +b [b=up,a=up]2/2/0/2 "
        "#do -a R:child_terminated:a +a [b=up,a=up]2/2/0/2 "
        "#do -a R:child_terminated:a +a [b=up,a=up]2/2/0/2 "
        "-b -a SUPEXIT:shutdown",
        intensity=2,
    ),
    case(
        (33, 35),
        "one more",
        ["a", "b"],
        [do("a"), do("a")],
        "+a +b [b=up,a=up]2/2/0/2 "
        "#do -a R:child_terminated:a +a [b=up,a=up]2/2/0/2 "
        "#do -a R:child_terminated:a R:shutdown:a -b SUPEXIT:shutdown",
        intensity=1,
    ),
    case(
        33,
        "restarts of all children count together",
        ["a", "b", "c"],
        [do("a"), do("b"), do("c")],
        "+a +b +c [c=up,b=up,a=up]3/3/0/3 "
        "#do -a R:child_terminated:a +a [c=up,b=up,a=up]3/3/0/3 "
        "#do -b R:child_terminated:b +b [c=up,b=up,a=up]3/3/0/3 "
        "#do -c R:child_terminated:c R:shutdown:c -b -a SUPEXIT:shutdown",
        intensity=2,
    ),
    case(
        34,
        "the first restart",
        ["a"],
        [do("a")],
        "+a [a=up]1/1/0/1 #do -a R:child_terminated:a R:shutdown:a SUPEXIT:shutdown",
        intensity=0,
    ),
    case(
        34,
        "an end that restarts nothing",
        [child("a", "transient"), child("b", "temporary"), "c"],
        [do("a", "normal"), do("b")],
        "+a +b +c [c=up,b=up,a=up]3/3/0/3 "
        "#do -a [c=up,b=up,a=undefined]3/2/0/3 "
        "#do -b R:child_terminated:b [c=up,a=undefined]2/1/0/2 "
        "-c SUPEXIT:shutdown",
        intensity=0,
    ),
    case(
        35,
        "a temporary child and one that does not run are there, too",
        ["a", child("b", "temporary"), "c", "d"],
        [terminate("c"), do("a")],
        "+a +b +c +d [d=up,c=up,b=up,a=up]4/4/0/4 "
        "#term -c =ok [d=up,c=undefined,b=up,a=up]4/3/0/4 "
        "#do -a R:child_terminated:a R:shutdown:a -d -b SUPEXIT:shutdown",
        intensity=0,
    ),
    case(
        36,
        "one restart each period",
        ["a"],
        [do("a"), sleep(2100), do("a"), sleep(2100), do("a")],
        "+a [a=up]1/1/0/1 "
        "#do -a R:child_terminated:a +a [a=up]1/1/0/1 "
        "#sleep [a=up]1/1/0/1 "
        "#do -a R:child_terminated:a +a [a=up]1/1/0/1 "
        "#sleep [a=up]1/1/0/1 "
        "#do -a R:child_terminated:a +a [a=up]1/1/0/1 "
        "-a SUPEXIT:shutdown",
        intensity=1,
        period=1,
    ),
    case(
        38,
        "the start fails until the intensity is exceeded",
        ["a", child("b", starts="ok err err err")],
        [do("b")],
        "+a +b [b=up,a=up]2/2/0/2 "
        "#do -b R:child_terminated:b R:start_error:b R:start_error:b R:shutdown:b -a SUPEXIT:shutdown",
        intensity=2,
    ),
    case(
        38,
        "also that of a dynamic child",
        [child("a", starts="ok err raise")],
        [start(["x"]), do(0)],
        "[]1/0/0/0 "
        "#startc +a:x =ok,pid [undefined=up]1/1/0/1 "
        "#do -a:x R:child_terminated:a R:start_error:a R:start_error:a R:shutdown:a SUPEXIT:shutdown",
        strategy=SIMPLE,
        intensity=2,
    ),
    case(
        (39, 63),
        "terminate_child between two attempts",
        ["a", child("b", starts="ok err ok")],
        [burst(do("b"), terminate("b"))],
        "+a +b [b=up,a=up]2/2/0/2 "
        "#burst -b R:child_terminated:b R:start_error:b =ok [b=undefined,a=up]2/1/0/2 "
        "-a SUPEXIT:shutdown",
    ),
    case(
        (39, 63),
        "and its spec can be deleted",
        ["a", child("b", starts="ok err ok")],
        [burst(do("b"), terminate("b"), delete("b"))],
        "+a +b [b=up,a=up]2/2/0/2 "
        "#burst -b R:child_terminated:b R:start_error:b =ok =ok [a=up]1/1/0/1 "
        "-a SUPEXIT:shutdown",
    ),
    case(
        (39, 64, 65),
        "other requests between two attempts",
        ["a", child("b", starts="ok err ok")],
        [burst(do("b"), restart("b"), delete("b"), start("b"), start("c"))],
        "+a +b [b=up,a=up]2/2/0/2 "
        "#burst -b R:child_terminated:b R:start_error:b +c +b =error,restarting =error,restarting =error,already_present =ok,pid [c=up,b=up,a=up]3/3/0/3 "
        "-c -b -a SUPEXIT:shutdown",
    ),
    *(
        case(
            (39, 63),
            f"terminate_child after a group failed, {strategy}",
            ["a", child("b", starts="ok err ok"), "c"],
            [burst(do("a"), terminate("b"))],
            "+a +b +c [c=up,b=up,a=up]3/3/0/3 "
            "#burst -a R:child_terminated:a -c -b +a R:start_error:b =ok [c=undefined,b=undefined,a=up]3/1/0/3 "
            "-a SUPEXIT:shutdown",
            strategy=strategy,
        )
        for strategy in ("one_for_all", "rest_for_one")
    ),
    case(
        (39, 63),
        "terminate_child of a dynamic child",
        [child("a", starts="ok err ok")],
        [start(["x"]), burst(do(0), terminate(0))],
        "[]1/0/0/0 "
        "#startc +a:x =ok,pid [undefined=up]1/1/0/1 "
        "#burst -a:x R:child_terminated:a R:start_error:a =ok []1/0/0/0 "
        "SUPEXIT:shutdown",
        strategy=SIMPLE,
        is_otps=False,
    ),
    case(
        40,
        "restarts by request",
        ["a"],
        [terminate("a"), restart("a"), terminate("a"), restart("a"), do("a")],
        "+a [a=up]1/1/0/1 "
        "#term -a =ok [a=undefined]1/0/0/1 "
        "#restart +a =ok,pid [a=up]1/1/0/1 "
        "#term -a =ok [a=undefined]1/0/0/1 "
        "#restart +a =ok,pid [a=up]1/1/0/1 "
        "#do -a R:child_terminated:a +a [a=up]1/1/0/1 "
        "-a SUPEXIT:shutdown",
        intensity=1,
    ),
]
