"""Thespian's own tests, which it ships, on a system base of ours: a pytest plugin with the tests that it leaves out.

``run`` starts pytest in a process of its own with this file as a plugin. It puts ``AsyncioBase`` in
the place of the fixture ``asys``, through which all of Thespian's tests get their system.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import thespian.test
from thespian.actors import ActorSystem

from leveret.actors.thespian.actor_threads import ActorThread
from leveret.actors.thespian.base import register
from leveret.actors.thespian.handling import Port

BASE = "asyncioBase"
SUITE = Path(thespian.test.__file__).parent

# Several systems that form a convention; AsyncioBase is one system on one host.
OTHER_HOSTS = {
    "test_HAConvention",
    "test_manyActorSystems",
    "test_multipleActorSystems",
    "test_preRegistration",
    "test_updateSystemCapabilities",
}
SEVERAL_SYSTEMS = "TestFuncMultipleSystemsLoadSource"  # likewise, in test_sourceLoading
SHELL = {"test_director"}  # the program around a convention; its tests start none of ours
QUICK = {
    "test_actors",
    "test_badmessage",
    "test_createActor",
    "test_globalName",
    "test_initmsgs",
    "test_poisonMessage",
    "test_requireCapability",
    "test_simpleActor",
    "test_stats",
    "test_systemMessages",
}
ORDER = {"test_actorFailures", "test_actors", "test_deadLettering", "test_stats"}  # it matters
FAILURES = {"test_actorFailures"}  # waits much, as do the next
WAITS = {"test_deadLettering", "test_wakeup"}

MODULES = sorted({path.stem for path in SUITE.glob("test_*.py")} - OTHER_HOSTS - SHELL)

WATCH = "needs ThespianWatch, as on all bases but TCP"
KNOWN_FAILURES = {
    "testCommandAbort[asyncioBase]": WATCH,
}

LATE_S = 0.02  # Thespian's own tests wait 0.05 s and then take the work to be done
SLOW_SEND_S = 0.0015
LATE_SEED = 5

CAPABILITIES = {"Foo Allowed": True, "Cows Allowed": True, "Dogs Allowed": True, "dog": "food"}


@pytest.fixture(name="asys", params=[BASE])
def asys(request: pytest.FixtureRequest) -> Iterator[Any]:
    """What Thespian's own fixture returns, for our base."""
    system: Any = ActorSystem(request.param, dict(CAPABILITIES), False, transientUnique=True)
    system.base_name, system.port_num, system.txonly = request.param, None, False
    yield system
    system.shutdown()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--late-threads", action="store_true", help="threads of actors are late")


def pytest_configure(config: pytest.Config) -> None:
    register()
    thespian.test.asys = asys
    if config.getoption("--late-threads"):
        make_threads_late()


def make_threads_late() -> None:
    """Let some turns begin late, go on late after an answer, and threads be late at their end."""
    lateness = random.Random(LATE_SEED)
    do, actor_send = ActorThread.do, Port.actor_send

    def late_do(thread: ActorThread, job: Callable[[], None]) -> None:
        before_s, after_s = (lateness.choice((0.0, lateness.random() * LATE_S)) for _ in "ab")

        def late_job() -> None:
            time.sleep(before_s)
            job()
            time.sleep(after_s)

        do(thread, late_job)

    def slow_send(port: Port, target: Any, message: Any) -> None:
        actor_send(port, target, message)
        time.sleep(lateness.choice((0.0, SLOW_SEND_S)))

    ActorThread.do = late_do  # type: ignore[method-assign]
    Port.actor_send = slow_send  # type: ignore[method-assign]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests of several systems."""
    out = [item for item in items if SEVERAL_SYSTEMS in item.nodeid]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in out]


def run(
    modules: set[str], folder: Path, timeout_s: float, has_late_threads: bool = False
) -> dict[str, str]:
    """Run modules of the suite.

    Returns:
        ``passed``, ``skipped`` or ``failed`` by ``module.class::test``.
    """
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(folder / "pytest.ini")]
    command += [
        f"--rootdir={folder}",
        "-p",
        "rigs.supervision.thespian_suite",
        "-p",
        "no:cacheprovider",
    ]
    command += ["-o", "junit_family=xunit1"]  # it names files
    command += [
        f"--junitxml={report}",
        "--pyargs",
        *[f"thespian.test.{m}" for m in sorted(modules)],
    ]
    command += ["--late-threads"] if has_late_threads else []
    paths = {"PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONSAFEPATH": "1"}
    subprocess.run(
        command,
        cwd=folder,
        env=os.environ | paths,
        timeout=timeout_s,
        check=False,
        capture_output=True,
    )
    cases = ET.parse(report).iter("testcase")
    return {_test_id(case): _outcome(case) for case in cases}


def _test_id(case: ET.Element) -> str:
    module = Path(case.get("file") or "").stem
    return f"{module}{case.get('classname')}::{case.get('name')}"


def _outcome(case: ET.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "skipped" if case.find("skipped") is not None else "passed"
