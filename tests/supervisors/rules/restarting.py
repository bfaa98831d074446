"""Cases: restart kinds and strategies."""

from __future__ import annotations

from supervisors.rules.notation import Case, case, child, do, restart, sleep, start, terminate

ORDERLY = ("normal", "shutdown", ["shutdown", "x"])
ABC = ["a", "b", "c"]

KINDS: list[Case] = [
    case(
        12,
        "five ways to end",
        ["a", "b"],
        [do("a"), *(do("a", reason) for reason in ORDERLY), do("a", "kill")],
        "+a +b [b=up,a=up]2/2/0/2 "
        "#do -a R:child_terminated:a +a [b=up,a=up]2/2/0/2 "
        "#do -a R:child_terminated:a +a [b=up,a=up]2/2/0/2 "
        "#do -a R:child_terminated:a +a [b=up,a=up]2/2/0/2 "
        "#do -a R:child_terminated:a +a [b=up,a=up]2/2/0/2 "
        "#do R:child_terminated:a +a [b=up,a=up]2/2/0/2 "
        "-b -a SUPEXIT:shutdown",
    ),
    case(
        (13, 15),
        "it failed",
        [child("a", "transient"), "b"],
        [do("a"), do("a", "kill")],
        "+a +b [b=up,a=up]2/2/0/2 "
        "#do -a R:child_terminated:a +a [b=up,a=up]2/2/0/2 "
        "#do R:child_terminated:a +a [b=up,a=up]2/2/0/2 "
        "-b -a SUPEXIT:shutdown",
    ),
    *(
        case(
            (13, 15),
            f"it ended of {reason}",
            [child("a", "transient"), "b"],
            [do("a", reason)],
            "+a +b [b=up,a=up]2/2/0/2 #do -a [b=up,a=undefined]2/1/0/2 -b SUPEXIT:shutdown",
        )
        for reason in ORDERLY
    ),
    case(
        (14, 15),
        "it failed",
        ["a", child("b", "temporary"), "c"],
        [do("b")],
        "+a +b +c [c=up,b=up,a=up]3/3/0/3 "
        "#do -b R:child_terminated:b [c=up,a=up]2/2/0/2 "
        "-c -a SUPEXIT:shutdown",
    ),
    case(
        (14, 15),
        "it was killed",
        ["a", child("b", "temporary"), "c"],
        [do("b", "kill")],
        "+a +b +c [c=up,b=up,a=up]3/3/0/3 "
        "#do R:child_terminated:b [c=up,a=up]2/2/0/2 "
        "-c -a SUPEXIT:shutdown",
        strategy="one_for_all",
    ),
    *(
        case(
            (14, 15),
            f"it ended of {reason}",
            ["a", child("b", "temporary"), "c"],
            [do("b", reason)],
            "+a +b +c [c=up,b=up,a=up]3/3/0/3 #do -b [c=up,a=up]2/2/0/2 -c -a SUPEXIT:shutdown",
            strategy="rest_for_one",
        )
        for reason in ORDERLY
    ),
    case(
        16,
        "it failed",
        ["a", child("b", "intrinsic")],
        [do("b")],
        "+a +b [b=up,a=up]2/2/0/2 "
        "#do -b R:child_terminated:b +b [b=up,a=up]2/2/0/2 "
        "-b -a SUPEXIT:shutdown",
        module="supervisor2",
    ),
    *(
        case(
            16,
            f"it ended of {reason}",
            ["a", child("b", "intrinsic"), "c"],
            [do("b", reason)],
            "+a +b +c [c=up,b=up,a=up]3/3/0/3 #do -b -c -a SUPEXIT:shutdown",
            module="supervisor2",
        )
        for reason in ORDERLY
    ),
    *(
        case(
            17,
            f"asked for by a child that is {kind}",
            [child("a", kind)],
            [do("a", ["shutdown", "restart"])],
            "+a [a=up]1/1/0/1 #do -a +a [a=up]1/1/0/1 -a SUPEXIT:shutdown",
            module="supervisor2",
        )
        for kind in ("transient", "intrinsic")
    ),
    case(
        (17, 12),
        "asked for by a permanent child",
        ["a"],
        [do("a", ["shutdown", "restart"])],
        "+a [a=up]1/1/0/1 #do -a R:child_terminated:a +a [a=up]1/1/0/1 -a SUPEXIT:shutdown",
        module="supervisor2",
    ),
    case(
        17,
        "OTP does not know that reason",
        [child("a", "transient")],
        [do("a", ["shutdown", "restart"])],
        "+a [a=up]1/1/0/1 #do -a [a=undefined]1/0/0/1 SUPEXIT:shutdown",
    ),
    *(
        case(
            (18, 19),
            f"a delayed {kind} child waits",
            ["a", child("b", [kind, 0.5])],
            [do("b"), do("b"), sleep(600), do("b")],
            "+a +b [b=up,a=up]2/2/0/2 "
            "#do -b R:child_terminated:b +b [b=up,a=up]2/2/0/2 "
            "#do -b R:child_terminated:b [b=restarting,a=up]2/1/0/2 "
            "#sleep R:child_terminated:b +b [b=up,a=up]2/2/0/2 "
            "#do -b R:child_terminated:b [b=restarting,a=up]2/1/0/2 "
            "-a SUPEXIT:shutdown",
            module="supervisor2",
            intensity=1,
        )
        for kind in ("permanent", "transient", "intrinsic")
    ),
    case(
        18,
        "the others still exceed the intensity",
        ["a", child("b", ["permanent", 0.5])],
        [do("b"), do("a")],
        "+a +b [b=up,a=up]2/2/0/2 "
        "#do -b R:child_terminated:b +b [b=up,a=up]2/2/0/2 "
        "#do -a R:child_terminated:a R:shutdown:a -b SUPEXIT:shutdown",
        module="supervisor2",
        intensity=1,
    ),
    case(
        18,
        "an orderly end of a delayed transient child",
        [child("a", ["transient", 0.5])],
        [do("a", "normal")],
        "+a [a=up]1/1/0/1 #do -a [a=undefined]1/0/0/1 SUPEXIT:shutdown",
        module="supervisor2",
        intensity=0,
    ),
    case(
        19,
        "the child was deleted meanwhile",
        ["a", child("b", ["permanent", 0.5])],
        [do("b"), terminate("b"), ["delete_child", "b"], sleep(600)],
        "+a +b [b=up,a=up]2/2/0/2 "
        "#do -b R:child_terminated:b [b=restarting,a=up]2/1/0/2 "
        "#term =ok [b=undefined,a=up]2/1/0/2 "
        "#delete =ok [a=up]1/1/0/1 "
        "#sleep [a=up]1/1/0/1 "
        "-a SUPEXIT:shutdown",
        module="supervisor2",
        intensity=0,
    ),
]

STRATEGIES: list[Case] = [
    case(
        20,
        "the middle one",
        ABC,
        [do("b")],
        "+a +b +c [c=up,b=up,a=up]3/3/0/3 "
        "#do -b R:child_terminated:b +b [c=up,b=up,a=up]3/3/0/3 "
        "-c -b -a SUPEXIT:shutdown",
    ),
    case(
        21,
        "the middle one",
        ABC,
        [do("b")],
        "+a +b +c [c=up,b=up,a=up]3/3/0/3 "
        "#do -b R:child_terminated:b -c -a +a +b +c [c=up,b=up,a=up]3/3/0/3 "
        "-c -b -a SUPEXIT:shutdown",
        strategy="one_for_all",
    ),
    case(
        21,
        "the newest",
        ABC,
        [do("c", "kill")],
        "+a +b +c [c=up,b=up,a=up]3/3/0/3 "
        "#do R:child_terminated:c -b -a +a +b +c [c=up,b=up,a=up]3/3/0/3 "
        "-c -b -a SUPEXIT:shutdown",
        strategy="one_for_all",
    ),
    case(
        22,
        "the middle one",
        ABC,
        [do("b")],
        "+a +b +c [c=up,b=up,a=up]3/3/0/3 "
        "#do -b R:child_terminated:b -c +b +c [c=up,b=up,a=up]3/3/0/3 "
        "-c -b -a SUPEXIT:shutdown",
        strategy="rest_for_one",
    ),
    case(
        22,
        "the newest",
        ABC,
        [do("c")],
        "+a +b +c [c=up,b=up,a=up]3/3/0/3 "
        "#do -c R:child_terminated:c +c [c=up,b=up,a=up]3/3/0/3 "
        "-c -b -a SUPEXIT:shutdown",
        strategy="rest_for_one",
    ),
    case(
        22,
        "a child that was added last",
        ["a", "b"],
        [start("c"), do("b")],
        "+a +b [b=up,a=up]2/2/0/2 "
        "#startc +c =ok,pid [c=up,b=up,a=up]3/3/0/3 "
        "#do -b R:child_terminated:b -c +b +c [c=up,b=up,a=up]3/3/0/3 "
        "-c -b -a SUPEXIT:shutdown",
        strategy="rest_for_one",
    ),
    *(
        case(
            23,
            f"with {strategy}",
            ["a", child("b", "temporary"), "c", child("d", "temporary")],
            [do("a")],
            "+a +b +c +d [d=up,c=up,b=up,a=up]4/4/0/4 "
            "#do -a R:child_terminated:a -d -c -b +a +c [c=up,a=up]2/2/0/2 "
            "-c -a SUPEXIT:shutdown",
            strategy=strategy,
        )
        for strategy in ("one_for_all", "rest_for_one")
    ),
    case(
        24,
        "with one_for_all",
        ABC,
        [terminate("c"), do("b")],
        "+a +b +c [c=up,b=up,a=up]3/3/0/3 "
        "#term -c =ok [c=undefined,b=up,a=up]3/2/0/3 "
        "#do -b R:child_terminated:b -a +a +b +c [c=up,b=up,a=up]3/3/0/3 "
        "-c -b -a SUPEXIT:shutdown",
        strategy="one_for_all",
    ),
    case(
        24,
        "with rest_for_one",
        ABC,
        [terminate("c"), do("b")],
        "+a +b +c [c=up,b=up,a=up]3/3/0/3 "
        "#term -c =ok [c=undefined,b=up,a=up]3/2/0/3 "
        "#do -b R:child_terminated:b +b +c [c=up,b=up,a=up]3/3/0/3 "
        "-c -b -a SUPEXIT:shutdown",
        strategy="rest_for_one",
    ),
    case(
        (24, 20),
        "but not with one_for_one",
        ABC,
        [terminate("c"), do("b")],
        "+a +b +c [c=up,b=up,a=up]3/3/0/3 "
        "#term -c =ok [c=undefined,b=up,a=up]3/2/0/3 "
        "#do -b R:child_terminated:b +b [c=undefined,b=up,a=up]3/2/0/3 "
        "-b -a SUPEXIT:shutdown",
    ),
    case(
        24,
        "also one that ended normally",
        ["a", child("b", "transient")],
        [do("b", "normal"), do("a")],
        "+a +b [b=up,a=up]2/2/0/2 "
        "#do -b [b=undefined,a=up]2/1/0/2 "
        "#do -a R:child_terminated:a +a +b [b=up,a=up]2/2/0/2 "
        "-b -a SUPEXIT:shutdown",
        strategy="one_for_all",
    ),
    *(
        case(
            25,
            f"with {strategy}",
            [child("a", "transient"), child("b", "temporary"), "c"],
            [do("a", "normal"), do("b")],
            "+a +b +c [c=up,b=up,a=up]3/3/0/3 "
            "#do -a [c=up,b=up,a=undefined]3/2/0/3 "
            "#do -b R:child_terminated:b [c=up,a=undefined]2/1/0/2 "
            "-c SUPEXIT:shutdown",
            strategy=strategy,
        )
        for strategy in ("one_for_all", "rest_for_one")
    ),
    *(
        case(
            26,
            f"with {strategy}",
            ABC,
            [do("a"), do("a"), do("a")],
            "+a +b +c [c=up,b=up,a=up]3/3/0/3 "
            "#do -a R:child_terminated:a -c -b +a +b +c [c=up,b=up,a=up]3/3/0/3 "
            "#do -a R:child_terminated:a -c -b +a +b +c [c=up,b=up,a=up]3/3/0/3 "
            "#do -a R:child_terminated:a R:shutdown:a -c -b SUPEXIT:shutdown",
            strategy=strategy,
            intensity=2,
        )
        for strategy in ("one_for_all", "rest_for_one")
    ),
    case(
        27,
        "rest_for_one goes on from the child that failed",
        ["a", "b", child("c", starts="ok err ok"), "d"],
        [do("b")],
        "+a +b +c +d [d=up,c=up,b=up,a=up]4/4/0/4 "
        "#do -b R:child_terminated:b -d -c +b R:start_error:c +c +d [d=up,c=up,b=up,a=up]4/4/0/4 "
        "-d -c -b -a SUPEXIT:shutdown",
        strategy="rest_for_one",
    ),
    case(
        27,
        "one_for_all begins with all again",
        ["a", child("b", starts="ok err ok"), "c"],
        [do("c")],
        "+a +b +c [c=up,b=up,a=up]3/3/0/3 "
        "#do -c R:child_terminated:c -b -a +a R:start_error:b -a +a +b +c [c=up,b=up,a=up]3/3/0/3 "
        "-c -b -a SUPEXIT:shutdown",
        strategy="one_for_all",
    ),
    case(
        27,
        "each try counts",
        ["a", child("b", starts="ok err err"), "c"],
        [do("a")],
        "+a +b +c [c=up,b=up,a=up]3/3/0/3 "
        "#do -a R:child_terminated:a -c -b +a R:start_error:b -a +a R:start_error:b R:shutdown:b -a SUPEXIT:shutdown",
        strategy="one_for_all",
        intensity=2,
    ),
    case(
        27,
        "until it succeeds",
        ["a", child("b", starts="ok err err ok")],
        [do("a"), restart("b")],
        "+a +b [b=up,a=up]2/2/0/2 "
        "#do -a R:child_terminated:a -b +a R:start_error:b -a +a R:start_error:b -a +a +b [b=up,a=up]2/2/0/2 "
        "#restart =error,running [b=up,a=up]2/2/0/2 "
        "-b -a SUPEXIT:shutdown",
        strategy="one_for_all",
        intensity=3,
    ),
]

CASES = [*KINDS, *STRATEGIES]
