"""An audit whose segments are read by tasks of Spark finds what one in this process finds."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from leveret.core.errors import LeveretError
from leveret.msg_store.offline.audit import audited
from leveret.msg_store.offline.defects import defects_of
from leveret.spark import audit
from leveret.spark.jobs.audit_spark import check_with_spark
from leveret.spark.jobs.progress import silent
from rigs.store.offline.offline_rig import OfflineRig, quiet
from rigs.store.offline.planted_defects import PLANTED, Planter, named

pytestmark = pytest.mark.spark


def filled(path: Path, rng: random.Random) -> OfflineRig:
    rig = OfflineRig(path / "store")
    rig.busy(rng, 12)
    return rig


@pytest.mark.slow
def test_planted_defects_are_named_exactly(spark: Any, tmp_path: Path, rng: random.Random) -> None:
    rig = filled(tmp_path, rng)
    rig.stop()
    planter = Planter(rig.path, rng)
    for name in PLANTED:
        getattr(planter, name)(3)
    planter.finish()

    with audited(rig.path, quiet, check=check_with_spark(spark, silent)) as found:
        assert named(list(defects_of(found))) == planter.expected
    here, there = audit(rig.path), audit(rig.path, spark=spark)

    assert (here.engine, there.engine) == ("local", "spark")
    assert there.counts == here.counts
    assert there.details == here.details


@pytest.mark.slow
def test_what_a_journal_has_of_a_segment_is_known_to_the_tasks(
    spark: Any, tmp_path: Path, rng: random.Random
) -> None:
    rig = filled(tmp_path, rng)
    rig.publish((1,), 3)
    rig.crash()
    segment = max((rig.path / "rdq").iterdir())
    with segment.open(
        "r+b"
    ) as file:  # a power cut: the journal has these messages, the segment not
        file.truncate(segment.stat().st_size - 200)

    report = audit(rig.path, spark=spark)

    assert report.is_complete
    assert report.counts["entries"] == len(rig.rows)


def test_a_segment_that_tasks_do_not_see_is_an_error(
    spark: Any, tmp_path: Path, rng: random.Random
) -> None:
    rig = filled(tmp_path, rng)
    rig.stop()

    with audited(rig.path, quiet) as found:
        check = check_with_spark(spark, silent)
        locations = found.locations.at(found.locations.by_file()[1])
        with pytest.raises(
            LeveretError, match=r"0000abcd .* must see the store under the same path"
        ):
            list(check(found.store.folder, [(0xABCD, locations)]))
