"""Cases: supervisors below supervisors."""

from __future__ import annotations

from typing import Any

from supervisors.rules.notation import Case, case, child, do, restart, terminate, tree

PAIR: list[Any] = ["b1", "b2"]

CASES: list[Case] = [
    case(
        (42, 5),
        "branches start and stop as a whole",
        ["a", tree("b", PAIR), "c"],
        [],
        "+a +b1 +b2 +c [c=up,b=up,a=up]3/3/1/2 -c -b2 -b1 -a SUPEXIT:shutdown",
    ),
    case(
        8,
        "a start that fails below",
        ["a", tree("b", ["b1", child("b2", starts="err")]), "c"],
        [],
        "+a +b1 R:start_error:b2 -b1 R:start_error:b -a STARTERR:failed:b",
    ),
    case(
        (20, 54),
        "what can be cured below does not climb",
        ["a", tree("b", PAIR), "c"],
        [do("b1")],
        "+a +b1 +b2 +c [c=up,b=up,a=up]3/3/1/2 "
        "#do -b1 R:child_terminated:b1 +b1 [c=up,b=up,a=up]3/3/1/2 "
        "-c -b2 -b1 -a SUPEXIT:shutdown",
        strategy="one_for_all",
    ),
    case(
        53,
        "a permanent one starts afresh",
        ["a", tree("b", PAIR, intensity=0)],
        [do("b1"), do("b1")],
        "+a +b1 +b2 [b=up,a=up]2/2/1/1 "
        "#do -b1 R:child_terminated:b1 R:shutdown:b1 -b2 R:child_terminated:b +b1 +b2 [b=up,a=up]2/2/1/1 "
        "#do -b1 R:child_terminated:b1 R:shutdown:b1 -b2 R:child_terminated:b +b1 +b2 [b=up,a=up]2/2/1/1 "
        "-b2 -b1 -a SUPEXIT:shutdown",
        intensity=2,
    ),
    case(
        53,
        "with a clean record",
        ["a", tree("b", PAIR, intensity=1)],
        [do("b1"), do("b2"), do("b1"), do("b2")],
        "+a +b1 +b2 [b=up,a=up]2/2/1/1 "
        "#do -b1 R:child_terminated:b1 +b1 [b=up,a=up]2/2/1/1 "
        "#do -b2 R:child_terminated:b2 R:shutdown:b2 -b1 R:child_terminated:b +b1 +b2 [b=up,a=up]2/2/1/1 "
        "#do -b1 R:child_terminated:b1 +b1 [b=up,a=up]2/2/1/1 "
        "#do -b2 R:child_terminated:b2 R:shutdown:b2 -b1 R:child_terminated:b +b1 +b2 [b=up,a=up]2/2/1/1 "
        "-b2 -b1 -a SUPEXIT:shutdown",
        intensity=2,
    ),
    case(
        53,
        "a transient one does not",
        ["a", tree("b", PAIR, "transient", intensity=0), "c"],
        [do("b1"), restart("b")],
        "+a +b1 +b2 +c [c=up,b=up,a=up]3/3/1/2 "
        "#do -b1 R:child_terminated:b1 R:shutdown:b1 -b2 [c=up,b=undefined,a=up]3/2/1/2 "
        "#restart +b1 +b2 =ok,pid [c=up,b=up,a=up]3/3/1/2 "
        "-c -b2 -b1 -a SUPEXIT:shutdown",
    ),
    case(
        (53, 21),
        "its siblings go with it",
        ["a", tree("b", PAIR, intensity=0), "c"],
        [do("b2")],
        "+a +b1 +b2 +c [c=up,b=up,a=up]3/3/1/2 "
        "#do -b2 R:child_terminated:b2 R:shutdown:b2 -b1 R:child_terminated:b -c -a +a +b1 +b2 +c [c=up,b=up,a=up]3/3/1/2 "
        "-c -b2 -b1 -a SUPEXIT:shutdown",
        strategy="one_for_all",
    ),
    case(
        54,
        "both levels give up",
        ["a", tree("b", PAIR, intensity=0), "c"],
        [do("b2")],
        "+a +b1 +b2 +c [c=up,b=up,a=up]3/3/1/2 "
        "#do -b2 R:child_terminated:b2 R:shutdown:b2 -b1 R:child_terminated:b R:shutdown:b -c -a SUPEXIT:shutdown",
        intensity=0,
    ),
    case(
        54,
        "three levels",
        ["a", tree("b", [tree("b1", ["b11", "b12"], intensity=0)], intensity=0)],
        [do("b11")],
        "+a +b11 +b12 [b=up,a=up]2/2/1/1 "
        "#do -b11 R:child_terminated:b11 R:shutdown:b11 -b12 R:child_terminated:b1 R:shutdown:b1 R:child_terminated:b R:shutdown:b -a SUPEXIT:shutdown",
        intensity=0,
    ),
    case(
        (54, 27),
        "a branch that fails to come back is tried again",
        ["a", tree("b", [child("b1", starts="ok err ok"), "b2"], intensity=0)],
        [do("b2")],
        "+a +b1 +b2 [b=up,a=up]2/2/1/1 "
        "#do -b2 R:child_terminated:b2 R:shutdown:b2 -b1 R:child_terminated:b R:start_error:b1 R:start_error:b +b1 +b2 [b=up,a=up]2/2/1/1 "
        "-b2 -b1 -a SUPEXIT:shutdown",
    ),
    case(
        (16, 53),
        "an intrinsic child takes its branch along",
        ["a", tree("b", [child("b1", "intrinsic"), "b2"], "intrinsic", module="supervisor2")],
        [do("b1", "normal")],
        "+a +b1 +b2 [b=up,a=up]2/2/1/1 #do -b1 -b2 -a SUPEXIT:shutdown",
        module="supervisor2",
    ),
    case(
        (56, 53),
        "a significant child ends its branch",
        [
            "a",
            tree(
                "b",
                [child("b1", "temporary", significant=True), "b2"],
                "transient",
                auto_shutdown="any_significant",
            ),
        ],
        [do("b1")],
        "+a +b1 +b2 [b=up,a=up]2/2/1/1 "
        "#do -b1 R:child_terminated:b1 -b2 [b=undefined,a=up]2/1/1/1 "
        "-a SUPEXIT:shutdown",
    ),
    case(
        (62, 46),
        "a branch is terminated",
        ["a", tree("b", ["b1", child("b2", on_shutdown="wrong")])],
        [terminate("b"), do("b1"), restart("b")],
        "+a +b1 +b2 [b=up,a=up]2/2/1/1 "
        "#term -b2 R:shutdown_error:b2 -b1 =ok [b=undefined,a=up]2/1/1/1 "
        "#do nopid [b=undefined,a=up]2/1/1/1 "
        "#restart +b1 +b2 =ok,pid [b=up,a=up]2/2/1/1 "
        "-b2 R:shutdown_error:b2 -b1 -a SUPEXIT:shutdown",
    ),
]
