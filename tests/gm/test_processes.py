"""Failing members with real processes, real sockets and a real etcd; the numbers are those of the scenarios K14 to K22.

Each member writes its history to a file as it happens. A round ends with a ring at rest, and the files of all members,
also of the killed ones, are judged: G1 to G5, I7 (nothing pending, one view, no dead in the record), and one order of
views in the record. By default there is one short round of some of them; with ``--slow`` 20 rounds of each, or
``LEVERET_GM_ROUNDS``.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from random import Random

import pytest

from leveret.gm.ring.view import View
from rigs.cluster.etcd import Etcd
from rigs.gm.gm_processes import ProcessRing, process_ring
from rigs.gm.recording import Recording, member_of
from rigs.waiting import wait_until

ROUNDS = int(os.environ.get("LEVERET_GM_ROUNDS", "20"))
STOP_S = float(os.environ.get("LEVERET_GM_STOP_S", "20"))  # of a member with SIGSTOP
NAMES = ("ann", "bob", "cem", "dan")
SOON_S = 3.0  # after so much silence a node is suspected, where silence is the fault
LATE_S = 15.0  # elsewhere: on a busy machine processes stand still for seconds
ETCD_S = 1.0  # for the answer of an etcd that stands still

Scenario = Callable[[ProcessRing, Random], None]


@pytest.fixture(scope="module")
def own_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """An etcd of these tests, which they may stop."""
    with Etcd(tmp_path_factory.mktemp("etcd")) as running:
        yield running


@pytest.fixture(scope="module")
def rings(
    request: pytest.FixtureRequest, own_etcd: Etcd, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[float, ProcessRing]]:
    """Nodes that suspect others after so many seconds of silence; their processes start when they are first needed."""
    random = Random(request.config.option.seed)
    with ExitStack() as stack:
        yield {
            suspect_s: stack.enter_context(
                process_ring(
                    tmp_path_factory.mktemp("ring"), own_etcd, NAMES, random, suspect_s, ETCD_S
                )
            )
            for suspect_s in (SOON_S, LATE_S)
        }


@pytest.fixture
def ring(rings: dict[float, ProcessRing], scenario: Scenario) -> ProcessRing:
    return rings[SOON_S if scenario in SILENT else LATE_S]


def play(ring: ProcessRing, random: Random, scenario: Scenario) -> None:
    """Play one round; when it fails, the nodes do not serve the next one."""
    try:
        ring.begin()
        scenario(ring, random)
        ring.end_round()
    except BaseException:
        ring.etcd.revive()
        ring.close()
        raise


def some_time(random: Random, most_s: float = 0.2) -> None:
    time.sleep(random.random() * most_s)


def node_of(member: str) -> str:
    return member.partition("/")[0]


def killed_by_trap(ring: ProcessRing, *names: str) -> list[str]:
    """Wait until a trap has killed one of these nodes, and return which."""

    def gone() -> list[str]:
        return [name for name in names if not ring.is_running(name)]

    wait_until(gone, f"none of {names} was killed", 30.0)
    return gone()


def heard(recording: Recording, member: str) -> list[tuple[str, str]]:
    """Return what a member has delivered: publishers and messages."""
    return [
        (str(publisher), message)
        for publisher, message in recording.deliveries.get(member_of(member), [])
    ]


def k14_a_mirrors_member_is_killed_and_comes_back_empty(ring: ProcessRing, random: Random) -> None:
    ring.join_with_load("ann", "bob")
    ring.ask("cem", "stay")
    ring.until_members(3)
    some_time(random)
    killed = ring.ask("cem", "end")
    ring.until_gone(killed)
    ring.until_members(3)
    recording = ring.rests(3)

    (again,) = (str(member) for member in recording.rests if member.node.startswith("cem"))
    assert again != killed
    assert heard(recording, again)[:1] != heard(recording, killed)[:1], "it began empty"


def k15_the_masters_process_is_killed_under_load(ring: ProcessRing, random: Random) -> None:
    master, one, two = ring.join("ann", "bob", "cem")
    ring.load("ann", 0.002)
    some_time(random)
    ring.nodes["ann"].kill9()
    ring.until_gone(master)
    recording = ring.rests(2)

    logs = [
        [message for publisher, message in heard(recording, each) if publisher == master]
        for each in (one, two)
    ]
    assert logs[0] == logs[1]


def k16_the_left_neighbour_of_a_joiner_is_killed_before_the_catch_up(
    ring: ProcessRing, random: Random
) -> None:
    ring.join_with_load("ann", "bob", "cem")
    token = str(ring.folder / ring.group / "killed")
    for name in ("ann", "bob", "cem"):
        ring.trap(name, {"event": "CatchUp", "to": "dan", "token": token})
    joiner = ring.ask("dan", "join")
    gone = killed_by_trap(ring, "ann", "bob", "cem")

    assert len(gone) == 1
    assert joiner in ring.until_members(3)
    ring.rests(3)


def k17_a_joiner_is_killed_before_the_catch_up(ring: ProcessRing, random: Random) -> None:
    members = ring.join_with_load("ann", "bob", "cem")
    if random.random() < 0.5:
        ring.trap("dan", {"event": "Ask"})
    else:
        for name in ("ann", "bob", "cem"):
            pid = ring.nodes["dan"].process.pid
            ring.trap(name, {"event": "CatchUp", "to": "dan", "pid": pid})
    with pytest.raises(EOFError):
        ring.ask("dan", "join")

    killed_by_trap(ring, "dan")
    assert {*ring.until_members(3)} == {*members}
    ring.rests(3)  # the record has no dead


def k18_three_joiners_and_a_death_at_the_same_time(ring: ProcessRing, random: Random) -> None:
    _k18(ring, random, rounds=50)


def k18_shortly(ring: ProcessRing, random: Random) -> None:
    _k18(ring, random, rounds=3)


def _k18(ring: ProcessRing, random: Random, rounds: int) -> None:
    ring.join("ann", "bob")
    for _ in range(rounds):
        _join_and_die(ring, random)
        while len(found := ring.status()) > 3:
            ring.ask(node_of(random.choice(sorted(found))), "leave")
        if not found:
            ring.join("ann", "bob")
        ring.until_members(len(ring.status()))
    ring.rests(len(ring.status()))
    for record in ring.versions():
        heirs = [dead for me in record.alive() for dead in View(record, me).aliases]
        dead = [entry.member for entry in record.entries if not entry.is_alive]
        if record.alive():
            assert sorted(heirs) == sorted(dead), "each of the dead has one heir"


def _join_and_die(ring: ProcessRing, random: Random) -> None:
    """Have three join, and one member killed meanwhile, now and then with its process."""
    alive = sorted(ring.status())
    victim = node_of(random.choice(alive))
    is_process = random.random() < 0.1 and len({*map(node_of, alive)}) > 1
    joins = [(name, ring.tell(name, "join")) for name in random.choices(NAMES, k=3)]
    if random.random() < 0.5:
        some_time(random, 0.01)
    if is_process:
        ring.nodes[victim].kill9()
    else:
        ring.ask(victim, "end")
    for name, number in joins:
        if ring.is_running(name):
            ring.nodes[name].result(number)  # the join may fail, if the dead was asked for it
    if is_process:
        ring.start(victim)


def k19_a_publisher_is_killed_with_a_message_in_its_buffer(
    ring: ProcessRing, random: Random
) -> None:
    dying, one, two = ring.join("ann", "bob", "cem")
    last = random.randrange(1, 5)
    ring.trap("ann", {"event": "own delivery", "number": last})
    for _ in range(last - 1):
        ring.ask("ann", "publish")
    with pytest.raises(EOFError):
        ring.ask("ann", "publish")
    ring.nodes["ann"].gone()
    ring.until_gone(dying)
    recording = ring.rests(2)

    published = [message for _, message in heard(recording, dying)]
    assert len(published) == last, "its own callback has run"
    for each in (one, two):
        assert published[-1] not in {message for _, message in heard(recording, each)}


def k20_a_member_is_killed_that_has_told_one_neighbour_only(
    ring: ProcessRing, random: Random
) -> None:
    dying, *others = ring.join(*NAMES)
    ring.trap("ann", {"event": "Activity", "number": random.randrange(2, 6)})
    with suppress(EOFError):
        for _ in range(6):
            ring.ask("ann", "publish")
            some_time(random, 0.05)
    killed_by_trap(ring, "ann")
    ring.until_gone(dying)
    recording = ring.rests(3)

    published = [message for _, message in heard(recording, dying)]
    logs = [
        [message for publisher, message in heard(recording, each) if publisher == dying]
        for each in others
    ]
    assert logs[0] == logs[1] == logs[2] == published[: len(logs[0])]
    assert logs[0], "its first frame was sent"


def k21_the_heir_is_killed_before_the_acknowledgements_are_through(
    ring: ProcessRing, random: Random
) -> None:
    members = ring.join(*NAMES)
    dying = members[0]
    order = ring.until_members(4)[dying]["members"]
    heir = order[(order.index(dying) + 1) % len(order)]
    name = node_of(heir)
    news = {"event": "Activity", "of": "ann"}
    ring.trap(name, news | {"pid": ring.nodes["ann"].process.pid}, news)
    with suppress(EOFError):
        ring.ask("ann", "publish")
    for each in ("ann", name):
        killed_by_trap(ring, each)
    ring.until_gone(dying, heir)
    recording = ring.rests(2)

    (published,) = heard(recording, dying)
    for each in members:
        if each not in (dying, heir):
            assert heard(recording, each).count(published) == 1


def k22_frames_are_late_and_links_break(ring: ProcessRing, random: Random) -> None:
    _k22(ring, random, breaks=12)


def k22_shortly(ring: ProcessRing, random: Random) -> None:
    _k22(ring, random, breaks=1)


def _k22(ring: ProcessRing, random: Random, breaks: int) -> None:
    for name in NAMES:
        ring.ask(name, "stay")
    ring.until_members(4)
    for name in NAMES:
        ring.load(name)
    ring.relays.delay(NAMES, NAMES, 0.0, 0.5)
    for _ in range(breaks):
        some_time(random, 1.0)
        ring.relays.reset(*random.sample(NAMES, 2))
    ring.relays.heal()
    ring.until_members(4)
    ring.rests(4)


def _staying(ring: ProcessRing) -> list[str]:
    """Have three members under load that are started again whenever one has ended."""
    for name in NAMES[:3]:
        ring.ask(name, "stay")
    members = sorted(ring.until_members(3))
    for name in NAMES[:3]:
        ring.load(name)
    return members


def a_member_is_stopped_and_goes_on(ring: ProcessRing, random: Random) -> None:
    """It was declared dead meanwhile, finds that out, and another one takes its place."""
    (stopped,) = (each for each in _staying(ring) if each.startswith("cem"))
    some_time(random)
    until_s = time.monotonic() + STOP_S
    ring.nodes["cem"].stop()
    ring.until_gone(stopped)
    confirmed = 0
    while not confirmed or time.monotonic() < until_s:
        confirmed += ring.ask("ann", "confirm")
        time.sleep(0.1)
    ring.nodes["cem"].go_on()
    again = ring.until_members(3)
    recording = ring.rests(3)

    assert stopped not in again
    assert len([member for member in recording.rests if member.node.startswith("cem")]) == 1


def etcd_stands_still_and_is_killed_under_load(ring: ProcessRing, random: Random) -> None:
    """With a death meanwhile, which waits for etcd."""
    ring.join_with_load("ann", "bob", "cem")
    ring.ask("dan", "stay")
    ring.until_members(4)
    is_killed = random.random() < 0.5
    ring.etcd.kill() if is_killed else ring.etcd.pause()
    for name in ("ann", "bob", "cem"):
        assert ring.ask(name, "confirm") == 1  # an intact ring needs no etcd
    killed = ring.ask("dan", "end")
    some_time(random, 2.0)
    assert any(killed in each["members"] for each in ring.status().values())
    ring.etcd.start() if is_killed else ring.etcd.resume()
    ring.until_gone(killed)
    ring.until_members(4)
    ring.rests(4)


def a_member_is_cut_off_from_etcd_only(ring: ProcessRing, random: Random) -> None:
    """It works on in the view that it has, and the others change the ring."""
    ring.join_with_load("ann", "bob", "cem")
    ring.until_members(3)  # bob must have seen the last version, or it waits for the record
    ring.relays.cut("bob", "etcd")
    for name in ("ann", "bob", "cem"):
        assert ring.ask(name, "confirm") == 1
    killed = ring.ask("cem", "end")
    time.sleep(random.random())
    joiner = ring.tell("dan", "join")
    time.sleep(random.random())
    ring.relays.heal()
    ring.nodes["dan"].answer(joiner)
    ring.until_gone(killed)
    ring.until_members(3)
    ring.rests(3)


def _cut(ring: ProcessRing, random: Random, *, is_one_way: bool) -> None:
    """Cut one member off from the others until somebody has ended, heal, and have all back."""
    before = _staying(ring)
    cut_off = random.choice(NAMES[:3])
    others = [name for name in NAMES[:3] if name != cut_off]
    ring.relays.cut(cut_off, others, is_one_way=is_one_way)
    ring.until(lambda found: any(each not in found for each in before))
    time.sleep(random.random() * SOON_S)
    ring.relays.heal()
    ring.until_members(3)
    ring.rests(3)


def a_member_is_cut_off_from_the_others(ring: ProcessRing, random: Random) -> None:
    _cut(ring, random, is_one_way=False)


def nothing_arrives_from_a_member(ring: ProcessRing, random: Random) -> None:
    _cut(ring, random, is_one_way=True)


def all_processes_are_killed_and_started_again(ring: ProcessRing, random: Random) -> None:
    """The record lists members of which no process is there any more."""
    killed = ring.join_with_load("ann", "bob", "cem")
    some_time(random)
    for name in ("ann", "bob", "cem"):
        ring.nodes[name].kill9()
    ring.start("ann", "bob", "cem")
    ring.join_with_load("ann", "bob", "cem")

    assert not {*killed} & {*ring.until_members(3)}
    ring.rests(3)


SHORT = [
    k14_a_mirrors_member_is_killed_and_comes_back_empty,
    k15_the_masters_process_is_killed_under_load,
    k16_the_left_neighbour_of_a_joiner_is_killed_before_the_catch_up,
    k17_a_joiner_is_killed_before_the_catch_up,
    k18_shortly,
    k19_a_publisher_is_killed_with_a_message_in_its_buffer,
    k20_a_member_is_killed_that_has_told_one_neighbour_only,
    k21_the_heir_is_killed_before_the_acknowledgements_are_through,
    k22_shortly,
]
SILENT = [
    a_member_is_stopped_and_goes_on,
    a_member_is_cut_off_from_the_others,
    nothing_arrives_from_a_member,
]
LONG = [
    *(each for each in SHORT if each not in (k18_shortly, k22_shortly)),
    k18_three_joiners_and_a_death_at_the_same_time,
    k22_frames_are_late_and_links_break,
    all_processes_are_killed_and_started_again,
    etcd_stands_still_and_is_killed_under_load,
    a_member_is_cut_off_from_etcd_only,
    *SILENT,
]


@pytest.mark.parametrize("scenario", SHORT, ids=lambda each: each.__name__)
def test_the_guarantees_hold_in_one_round(ring: ProcessRing, scenario: Scenario, seed: int) -> None:
    play(ring, Random(f"{seed} {scenario.__name__}"), scenario)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", LONG, ids=lambda each: each.__name__)
def test_the_guarantees_hold_in_many_rounds(
    ring: ProcessRing, scenario: Scenario, seed: int
) -> None:
    for number in range(ROUNDS):
        sys.stdout.write(f"{scenario.__name__}: round {number + 1} of {ROUNDS}\n")
        play(ring, Random(f"{seed} {scenario.__name__} {number}"), scenario)
