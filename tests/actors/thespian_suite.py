"""Thespian's own tests, which it ships, on a system base of ours: a pytest plugin and what it leaves out.

``run`` starts pytest in a process of its own with this file as a plugin. It puts ``AsyncioBase`` in
the place of the fixture ``asys``, through which all of Thespian's tests get their system.
"""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import thespian.test
from thespian.actors import ActorSystem

from leveret.actors.thespian_base import register

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
FAILURES = {"test_actorFailures"}  # waits much, as do the next
WAITS = {"test_deadLettering", "test_wakeup"}

MODULES = sorted({path.stem for path in SUITE.glob("test_*.py")} - OTHER_HOSTS - SHELL)

WATCH = "needs ThespianWatch, as on all bases but TCP"
KNOWN_FAILURES = {
    "testCommandAbort[asyncioBase]": WATCH,
}

CAPABILITIES = {"Foo Allowed": True, "Cows Allowed": True, "Dogs Allowed": True, "dog": "food"}


@pytest.fixture(name="asys", params=[BASE])
def asys(request: pytest.FixtureRequest) -> Iterator[Any]:
    """What Thespian's own fixture returns, for our base."""
    system: Any = ActorSystem(request.param, dict(CAPABILITIES), False, transientUnique=True)
    system.base_name, system.port_num, system.txonly = request.param, None, False
    yield system
    system.shutdown()


def pytest_configure() -> None:
    register()
    thespian.test.asys = asys


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is about several systems."""
    out = [item for item in items if SEVERAL_SYSTEMS in item.nodeid]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in out]


def run(modules: set[str], folder: Path, timeout_s: float) -> dict[str, str]:
    """Run modules of the suite.

    Returns:
        ``passed``, ``skipped`` or ``failed`` by ``module.class::test``.
    """
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(folder / "pytest.ini")]
    command += [f"--rootdir={folder}", "-p", "actors.thespian_suite", "-p", "no:cacheprovider"]
    command += ["-o", "junit_family=xunit1"]  # it names files
    command += [
        f"--junitxml={report}",
        "--pyargs",
        *[f"thespian.test.{m}" for m in sorted(modules)],
    ]
    paths = {"PYTHONPATH": str(Path(__file__).parents[1]), "PYTHONSAFEPATH": "1"}
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
