"""The rules of OTP supervision that Leveret keeps, by number.

``S2`` marks rules of RabbitMQ's supervisor2 alone, ``PROCESS`` rules that only children with a process of
their own can show, ``OURS`` rules that only actors of our runtime can. Everything else holds on every base. Cases
for the rules that a scenario can show are in the modules beside this one.
"""

from __future__ import annotations

from typing import Final

RULES: Final[dict[int, str]] = {
    # Starting.
    1: "flags default to one_for_one, one restart in 5 s, no automatic shutdown",
    2: "a wrong flag fails the start with supervisor_data, before any child has started",
    3: "a child is permanent, a worker, not significant; 5 s to stop, a supervisor for ever",
    4: "a wrong or doubled child spec fails the start with start_spec, before any child has started",
    5: "children start in order, each when the one before has answered",
    6: "a child that ignores its start stays in the list, undefined; the later ones start",
    7: "a temporary child that ignores its start leaves the list",
    8: "a child that fails at boot is reported, the earlier ones stop newest first, nothing is retried",
    9: "a supervisor whose init ignores is not there",
    10: "a supervisor traps exits and ignores those of actors other than its parent and children",
    11: "a supervisor logs messages that it does not know and lives on",
    # Restart kinds.
    12: "a permanent child is restarted after every end",
    13: "a transient child is restarted unless it ended normally or was shut down; else it stays, undefined",
    14: "a temporary child is never restarted and leaves the list; its siblings are not touched",
    15: "the end of a permanent child is always reported, that of the others if it was abnormal",
    16: "S2: an intrinsic child's orderly end ends the supervisor with shutdown",
    17: "S2: (shutdown, restart) restarts transient and intrinsic children, without a report",
    18: "S2: a delayed child that exceeds the intensity waits, restarting, and is tried again later",
    19: "S2: the delayed try begins with a clean record; a child deleted meanwhile stays away",
    # Strategies.
    20: "one_for_one restarts the dead child only",
    21: "one_for_all stops the others newest first and starts all in order",
    22: "rest_for_one stops the children started later and starts them again behind the dead child",
    23: "temporary siblings that were stopped with a group do not come back",
    24: "siblings that were terminated by hand come back with their group",
    25: "an end that restarts nothing touches no sibling",
    26: "the restart of a group counts once",
    27: "a start that fails in a group leaves it restarting; the next try begins there and counts",
    28: "simple_one_for_one has one template and starts without children",
    29: "a dynamic child starts, and restarts, with the template's arguments and its own",
    30: "a dynamic child that ignores its start is (ok, undefined) and not kept",
    31: "a dynamic child that ignores its restart is dropped (OTP 25 crashes later)",
    32: "dynamic children have addresses, no ids: nothing is restarted or deleted by id",
    # Intensity.
    33: "as many restarts as the intensity says are carried out, and not one more",
    34: "with intensity 0 the first restart ends the supervisor; other ends do not",
    35: "an overrun is reported, the dead child dropped, the rest stopped newest first",
    36: "restarts older than the period do not count",
    37: "OURS: the period is measured in fractions of seconds; exactly the period still counts",
    38: "an attempt that failed counts, too",
    39: "between two attempts waiting requests are served; a terminate_child wins",
    40: "a start by request does not count",
    41: "OURS: only the monotonic clock counts",
    # Stopping.
    42: "a supervisor that ends stops its children newest first, each waited for",
    43: "a child has its time to obey, then it is killed; the next one waits for its death",
    44: "infinity waits for ever",
    45: "brutal_kill does not ask",
    46: "a child that ends of something else than told is reported; an orderly end only if permanent",
    47: "OURS: a child that unlinked itself is stopped all the same",
    48: "a child that was dead before its stop is reported with its real reason and not restarted",
    49: "dynamic children stop all at once, under one time-out, with one report per reason",
    50: "a supervisor ends with its parent, of the same reason",
    51: "requests that arrive during a stop are answered after it, in order, or fail with the supervisor",
    52: "children of a killed supervisor get its exit over the link",
    # Escalation.
    53: "a supervisor that gave up ended of shutdown: a permanent one starts afresh, a transient one not",
    54: "overruns climb from level to level",
    # Significant children.
    55: "significant needs an automatic shutdown and a child that may end for good",
    56: "any_significant: the first significant child that ends for good ends the supervisor",
    57: "all_significant: the last one does",
    58: "a significant child that is restarted has not ended",
    59: "significant children that are stopped, by request or with a group, end nothing",
    # Requests.
    60: "start_child appends a new child; a running id is already_started, another already_present",
    61: "a start_child that fails leaves nothing behind",
    62: "terminate_child keeps the spec, but a temporary one's; it is ok for what does not run",
    63: "terminate_child takes a restart back that waits",
    64: "restart_child starts a stopped child, else says why not; a failure leaves it stopped",
    65: "delete_child forgets a stopped child, else says why not; the id is free again",
    66: "which_children lists the newest first, with address, undefined or restarting",
    67: "count_children counts specs, the living, and supervisors and workers whether they live or not",
    68: "get_childspec gives the spec with every default filled in",
    # Reports.
    69: "a started child is reported as progress, a dynamic one is not",
    70: "a report names supervisor, context, reason and offender; a grouped one has a count",
    # Hard failures.
    71: "PROCESS: a child whose process was killed is restarted like any that failed",
    72: "PROCESS: an end that is told twice restarts once",
    73: "PROCESS: a process killed while it starts is a start that failed",
    74: "PROCESS: a lost process host is the end, noconnection, of each actor in it",
    75: "OURS: the name of a dead child is free before its restart begins",
    76: "OURS: mail to a dead child's address never reaches the new one",
    77: "starts are acknowledged later on any base; a boot that has to stop children answers after it",
    78: "random scenarios end as on the real supervisors",
}
