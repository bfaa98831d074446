"""Memory in use and memory there is, from files as Linux has them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leveret.core.system.machine import Machine

STATUS = (
    "Name:\tx\nVmSwap:\t      20 kB\nVmRSS:\t  900 kB\nRssAnon:\t     100 kB\nRssFile:\t 800 kB\n"
)
MIB = 1 << 20


def machine(root: Path, groups: str = "", **limits: str) -> Machine:
    """Write what the system would say; ``limits`` are files below the control groups' folder."""
    files = {"proc/self/status": STATUS, "proc/meminfo": "MemTotal:  8192 kB\nMemFree: 1 kB\n"}
    files["proc/self/cgroup"] = groups
    files |= {f"sys/fs/cgroup/{name}": text for name, text in limits.items()}
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Machine(root)


def test_used_is_anonymous_memory_in_ram_or_swapped_out(tmp_path: Path) -> None:
    assert machine(tmp_path).used_bytes() == 120 * 1024


GROUPS = [
    ("", {}, 8 * MIB),
    ("0::/\n", {"memory.max": f"{MIB}\n"}, MIB),
    ("0::/\n", {"memory.max": "max\n"}, 8 * MIB),
    ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": f"{2 * MIB}\n"}, 2 * MIB),
    ("0::/a/b\n", {"a/b/memory.max": f"{3 * MIB}\n", "a/memory.max": "max"}, 3 * MIB),
    ("0::/a\n", {"a/memory.max": f"{64 * MIB}\n"}, 8 * MIB),
    ("0::/../x\n", {}, 8 * MIB),
    (
        "5:cpu,memory:/d\n1:name=systemd:/\n",
        {"memory/d/memory.limit_in_bytes": f"{4 * MIB}\n"},
        4 * MIB,
    ),
    ("5:memory:/d\n", {"memory/memory.limit_in_bytes": f"{5 * MIB}\n"}, 5 * MIB),
    ("5:cpu:/d\n", {"memory/d/memory.limit_in_bytes": f"{4 * MIB}\n"}, 8 * MIB),
]


@pytest.mark.parametrize(("groups", "limits", "total_bytes"), GROUPS)
def test_there_is_what_the_machine_has_or_a_control_group_allows(
    tmp_path: Path, groups: str, limits: dict[str, str], total_bytes: int
) -> None:
    assert machine(tmp_path, groups, **limits).total_bytes() == total_bytes


def test_nothing_is_known_where_the_system_does_not_tell(tmp_path: Path) -> None:
    unknown = Machine(tmp_path)

    assert unknown.used_bytes() is None
    assert unknown.total_bytes() is None


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc")
def test_this_process_uses_memory() -> None:
    here = Machine()
    here.give_back()  # what earlier tests have freed
    before = here.used_bytes() or 0
    kept = [os.urandom(64 * MIB)]

    more = (here.used_bytes() or 0) - before

    assert 32 * MIB < more < 128 * MIB
    kept.clear()
    here.give_back()
    assert (here.used_bytes() or 0) - before < 32 * MIB
