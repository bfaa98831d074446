"""Cases: requests to a supervisor."""

from __future__ import annotations

from rigs.supervision.scenario_files import SIMPLE
from supervisors.rules.notation import Case, case, child, delete, do, restart, start, terminate

SUPERVISOR = {"type": "supervisor"}

CASES: list[Case] = [
    case(
        60,
        "a new id is started last and stopped first",
        ["a"],
        [start("b"), start("c")],
        "+a [a=up]1/1/0/1 "
        "#startc +b =ok,pid [b=up,a=up]2/2/0/2 "
        "#startc +c =ok,pid [c=up,b=up,a=up]3/3/0/3 "
        "-c -b -a SUPEXIT:shutdown",
    ),
    case(
        60,
        "an id that runs",
        ["a"],
        [start("a")],
        "+a [a=up]1/1/0/1 #startc =error,already_started [a=up]1/1/0/1 -a SUPEXIT:shutdown",
    ),
    case(
        60,
        "an id that is stopped",
        ["a"],
        [terminate("a"), start("a")],
        "+a [a=up]1/1/0/1 "
        "#term -a =ok [a=undefined]1/0/0/1 "
        "#startc =error,already_present [a=undefined]1/0/0/1 "
        "SUPEXIT:shutdown",
    ),
    case(
        60,
        "a child that ignores is kept",
        ["a"],
        [start(child("b", "transient", "ign"))],
        "+a [a=up]1/1/0/1 #startc =ok,undefined [b=undefined,a=up]2/1/0/2 -a SUPEXIT:shutdown",
    ),
    case(
        (60, 7),
        "but not a temporary one",
        ["a"],
        [start(child("b", "temporary", "ign"))],
        "+a [a=up]1/1/0/1 #startc =ok,undefined [a=up]1/1/0/1 -a SUPEXIT:shutdown",
    ),
    case(
        61,
        "its init refuses",
        ["a"],
        [start(child("b", starts="err ok")), start("b")],
        "+a [a=up]1/1/0/1 "
        "#startc =error,other [a=up]1/1/0/1 "
        "#startc +b =ok,pid [b=up,a=up]2/2/0/2 "
        "-b -a SUPEXIT:shutdown",
    ),
    case(
        61,
        "its init raises",
        ["a"],
        [start(child("b", starts="raise"))],
        "+a [a=up]1/1/0/1 #startc =error,other [a=up]1/1/0/1 -a SUPEXIT:shutdown",
    ),
    case(
        61,
        "its spec is wrong",
        ["a"],
        [start(child("b", "always")), start([])],
        "+a [a=up]1/1/0/1 "
        "#startc =error,other [a=up]1/1/0/1 "
        "#startc =error,other [a=up]1/1/0/1 "
        "-a SUPEXIT:shutdown",
    ),
    case(
        61,
        "a dynamic child",
        [child("a", starts="err raise ok")],
        [start([]), start([]), start([])],
        "[]1/0/0/0 "
        "#startc =error,nope []1/0/0/0 "
        "#startc =error,other []1/0/0/0 "
        "#startc +a =ok,pid [undefined=up]1/1/0/1 "
        "-a SUPEXIT:shutdown",
        strategy=SIMPLE,
    ),
    case(
        62,
        "one that runs, twice",
        ["a", "b"],
        [terminate("b"), terminate("b")],
        "+a +b [b=up,a=up]2/2/0/2 "
        "#term -b =ok [b=undefined,a=up]2/1/0/2 "
        "#term =ok [b=undefined,a=up]2/1/0/2 "
        "-a SUPEXIT:shutdown",
    ),
    case(
        62,
        "a temporary one",
        ["a", child("b", "temporary")],
        [terminate("b"), terminate("b")],
        "+a +b [b=up,a=up]2/2/0/2 "
        "#term -b =ok [a=up]1/1/0/1 "
        "#term =error,not_found [a=up]1/1/0/1 "
        "-a SUPEXIT:shutdown",
    ),
    case(
        62,
        "an unknown one",
        ["a"],
        [terminate("x")],
        "+a [a=up]1/1/0/1 #term =error,not_found [a=up]1/1/0/1 -a SUPEXIT:shutdown",
    ),
    case(
        62,
        "it counts as no restart",
        ["a"],
        [terminate("a"), restart("a"), terminate("a")],
        "+a [a=up]1/1/0/1 "
        "#term -a =ok [a=undefined]1/0/0/1 "
        "#restart +a =ok,pid [a=up]1/1/0/1 "
        "#term -a =ok [a=undefined]1/0/0/1 "
        "SUPEXIT:shutdown",
        intensity=0,
    ),
    case(
        64,
        "a stopped child",
        ["a"],
        [terminate("a"), restart("a")],
        "+a [a=up]1/1/0/1 "
        "#term -a =ok [a=undefined]1/0/0/1 "
        "#restart +a =ok,pid [a=up]1/1/0/1 "
        "-a SUPEXIT:shutdown",
    ),
    case(
        64,
        "one that runs, an unknown one",
        ["a"],
        [restart("a"), restart("x")],
        "+a [a=up]1/1/0/1 "
        "#restart =error,running [a=up]1/1/0/1 "
        "#restart =error,not_found [a=up]1/1/0/1 "
        "-a SUPEXIT:shutdown",
    ),
    case(
        64,
        "it fails, and again, then starts",
        [child("a", starts="ok err raise ok")],
        [terminate("a"), restart("a"), restart("a"), restart("a")],
        "+a [a=up]1/1/0/1 "
        "#term -a =ok [a=undefined]1/0/0/1 "
        "#restart =error,nope [a=undefined]1/0/0/1 "
        "#restart =error,other [a=undefined]1/0/0/1 "
        "#restart +a =ok,pid [a=up]1/1/0/1 "
        "-a SUPEXIT:shutdown",
    ),
    case(
        64,
        "it ignores",
        [child("a", starts="ok ign")],
        [terminate("a"), restart("a")],
        "+a [a=up]1/1/0/1 "
        "#term -a =ok [a=undefined]1/0/0/1 "
        "#restart =ok,undefined [a=undefined]1/0/0/1 "
        "SUPEXIT:shutdown",
    ),
    case(
        65,
        "a stopped child; its id is free",
        ["a", "b"],
        [terminate("a"), delete("a"), start("a")],
        "+a +b [b=up,a=up]2/2/0/2 "
        "#term -a =ok [b=up,a=undefined]2/1/0/2 "
        "#delete =ok [b=up]1/1/0/1 "
        "#startc +a =ok,pid [a=up,b=up]2/2/0/2 "
        "-a -b SUPEXIT:shutdown",
    ),
    case(
        65,
        "one that runs, an unknown one",
        ["a"],
        [delete("a"), delete("x")],
        "+a [a=up]1/1/0/1 "
        "#delete =error,running [a=up]1/1/0/1 "
        "#delete =error,not_found [a=up]1/1/0/1 "
        "-a SUPEXIT:shutdown",
    ),
    case(
        (66, 67),
        "stopped, ended, running; workers and supervisors",
        ["a", child("b", "transient", **SUPERVISOR), child("c", **SUPERVISOR)],
        [terminate("a"), do("b", "normal")],
        "+a +b +c [c=up,b=up,a=up]3/3/2/1 "
        "#term -a =ok [c=up,b=up,a=undefined]3/2/2/1 "
        "#do -b [c=up,b=undefined,a=undefined]3/1/2/1 "
        "-c SUPEXIT:shutdown",
    ),
    case(
        (66, 67),
        "dynamic supervisors",
        [child("a", **SUPERVISOR)],
        [start([]), start([])],
        "[]1/0/0/0 "
        "#startc +a =ok,pid [undefined=up]1/1/1/0 "
        "#startc +a =ok,pid [undefined=up,undefined=up]1/2/2/0 "
        "-a -a SUPEXIT:shutdown",
        strategy=SIMPLE,
    ),
    case((66, 67), "nobody", [], [], "[]0/0/0/0 SUPEXIT:shutdown"),
]
