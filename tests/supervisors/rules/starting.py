"""Cases: flags, specs, the start, simple_one_for_one's template."""

from __future__ import annotations

from typing import Any

from rigs.supervision.scenario_files import SIMPLE
from supervisors.rules.notation import Case, case, child, do, start, terminate

BAD_FLAGS: list[tuple[str, Any, str]] = [
    ("strategy", "one_for_two", "{supervisor_data,{invalid_strategy,one_for_two}}"),
    ("intensity", -1, "{supervisor_data,{invalid_intensity,-1}}"),
    ("period", 0, "{supervisor_data,{invalid_period,0}}"),
    ("auto_shutdown", "always", "{supervisor_data,{invalid_auto_shutdown,always}}"),
]
BAD_CHILDREN: list[tuple[str, dict[str, Any]]] = [
    ("kind of restart", {"restart": "always"}),
    ("shutdown", {"shutdown": -1}),
    ("type", {"type": "server"}),
]

CASES: list[Case] = [
    case(
        1,
        "a strategy, an intensity and a period that nobody gave",
        ["a", "b"],
        [do("a"), do("b")],
        "+a +b [b=up,a=up]2/2/0/2 "
        "#do -a R:child_terminated:a +a [b=up,a=up]2/2/0/2 "
        "#do -b R:child_terminated:b R:shutdown:b -a SUPEXIT:shutdown",
        intensity=1,
        period=5,
    ),
    *(
        case(2, f"wrong {flag}", ["a"], [], f"STARTERR:{error}", **{flag: value})
        for flag, value, error in BAD_FLAGS
    ),
    case(
        3,
        "a child of which nothing but the id is said",
        [{"id": "a"}],
        [do("a", "normal")],
        "+a [a=up]1/1/0/1 #do -a R:child_terminated:a +a [a=up]1/1/0/1 -a SUPEXIT:shutdown",
    ),
    *(
        case(4, f"wrong {what}", ["a", {"id": "b", **rest}], [], "STARTERR:start_spec")
        for what, rest in BAD_CHILDREN
    ),
    case(4, "two children of one id", ["a", "a"], [], "STARTERR:start_spec"),
    case(
        5,
        "three children",
        ["a", "b", "c"],
        [],
        "+a +b +c [c=up,b=up,a=up]3/3/0/3 -c -b -a SUPEXIT:shutdown",
    ),
    case(
        (5, 8),
        "the second fails, the third is not tried",
        ["a", child("b", starts="raise"), "c"],
        [],
        "+a R:start_error:b -a STARTERR:failed:b",
    ),
    case(
        6,
        "the second ignores",
        ["a", child("b", starts="ign"), "c"],
        [],
        "+a +c [c=up,b=undefined,a=up]3/2/0/3 -c -a SUPEXIT:shutdown",
    ),
    case(
        6,
        "one that ignored is started by request",
        ["a", child("b", starts="ign")],
        [["restart_child", "b"]],
        "+a [b=undefined,a=up]2/1/0/2 "
        "#restart +b =ok,pid [b=up,a=up]2/2/0/2 "
        "-b -a SUPEXIT:shutdown",
    ),
    case(
        7,
        "a temporary one ignores",
        ["a", child("b", "temporary", "ign"), "c"],
        [],
        "+a +c [c=up,a=up]2/2/0/2 -c -a SUPEXIT:shutdown",
    ),
    case(
        8,
        "the third fails",
        ["a", "b", child("c", starts="err")],
        [],
        "+a +b R:start_error:c -b -a STARTERR:failed:c",
    ),
    case(
        8,
        "the first fails",
        [child("a", starts="err ok"), "b"],
        [],
        "R:start_error:a STARTERR:failed:a",
    ),
    case(28, "no template", [], [], "STARTERR:bad_start_spec", strategy=SIMPLE),
    case(28, "two templates", ["a", "b"], [], "STARTERR:bad_start_spec", strategy=SIMPLE),
    case(
        28,
        "a wrong template",
        [{"id": "a", "restart": "always"}],
        [],
        "STARTERR:start_spec",
        strategy=SIMPLE,
    ),
    case(28, "no children yet", ["a"], [], "[]1/0/0/0 SUPEXIT:shutdown", strategy=SIMPLE),
    case(
        29,
        "a child restarts with its own argument",
        ["a"],
        [start(["x"]), start(["y"]), do(0), do(0), do(0)],
        "[]1/0/0/0 "
        "#startc +a:x =ok,pid [undefined=up]1/1/0/1 "
        "#startc +a:y =ok,pid [undefined=up,undefined=up]1/2/0/2 "
        "#do -a:x R:child_terminated:a +a:x [undefined=up,undefined=up]1/2/0/2 "
        "#do -a:y R:child_terminated:a +a:y [undefined=up,undefined=up]1/2/0/2 "
        "#do -a:x R:child_terminated:a +a:x [undefined=up,undefined=up]1/2/0/2 "
        "-a:x -a:y SUPEXIT:shutdown",
        strategy=SIMPLE,
    ),
    case(
        29,
        "also after a start that failed",
        [child("a", "transient", "ok ok err ok")],
        [start(["x"]), start(["y"]), do(0)],
        "[]1/0/0/0 "
        "#startc +a:x =ok,pid [undefined=up]1/1/0/1 "
        "#startc +a:y =ok,pid [undefined=up,undefined=up]1/2/0/2 "
        "#do -a:x R:child_terminated:a R:start_error:a +a:x [undefined=up,undefined=up]1/2/0/2 "
        "-a:x -a:y SUPEXIT:shutdown",
        strategy=SIMPLE,
    ),
    case(
        29,
        "temporary ones have arguments, too",
        [child("a", "temporary")],
        [start(["x"]), start([]), do(0)],
        "[]1/0/0/0 "
        "#startc +a:x =ok,pid [undefined=up]1/1/0/1 "
        "#startc +a =ok,pid [undefined=up,undefined=up]1/2/0/2 "
        "#do -a:x R:child_terminated:a [undefined=up]1/1/0/1 "
        "-a SUPEXIT:shutdown",
        strategy=SIMPLE,
    ),
    case(
        30,
        "it ignores",
        [child("a", starts="ign ok")],
        [start([]), start([])],
        "[]1/0/0/0 "
        "#startc =ok,undefined []1/0/0/0 "
        "#startc +a =ok,pid [undefined=up]1/1/0/1 "
        "-a SUPEXIT:shutdown",
        strategy=SIMPLE,
    ),
    case(
        31,
        "it ignores its restart",
        [child("a", starts="ok ign")],
        [start([]), do(0), start([])],
        "[]1/0/0/0 "
        "#startc +a =ok,pid [undefined=up]1/1/0/1 "
        "#do -a R:child_terminated:a []1/0/0/0 "
        "#startc +a =ok,pid [undefined=up]1/1/0/1 "
        "-a SUPEXIT:shutdown",
        strategy=SIMPLE,
        is_otps=False,
    ),
    case(
        32,
        "restart and delete by id",
        ["a"],
        [start([]), ["restart_child", "a"], ["delete_child", "a"], terminate("a")],
        "[]1/0/0/0 "
        "#startc +a =ok,pid [undefined=up]1/1/0/1 "
        "#restart =error,simple_one_for_one [undefined=up]1/1/0/1 "
        "#delete =error,simple_one_for_one [undefined=up]1/1/0/1 "
        "#term =error,simple_one_for_one [undefined=up]1/1/0/1 "
        "-a SUPEXIT:shutdown",
        strategy=SIMPLE,
    ),
    case(
        32,
        "terminate by address",
        ["a"],
        [start(["x"]), start(["y"]), terminate(0)],
        "[]1/0/0/0 "
        "#startc +a:x =ok,pid [undefined=up]1/1/0/1 "
        "#startc +a:y =ok,pid [undefined=up,undefined=up]1/2/0/2 "
        "#term -a:x =ok [undefined=up]1/1/0/1 "
        "-a:y SUPEXIT:shutdown",
        strategy=SIMPLE,
    ),
    case(
        (55, 4),
        "a significant permanent child",
        [child("a", significant=True)],
        [],
        "STARTERR:start_spec",
        auto_shutdown="any_significant",
    ),
    case(
        (55, 4),
        "significant, but no automatic shutdown",
        [child("a", "temporary", significant=True)],
        [],
        "STARTERR:start_spec",
    ),
]
