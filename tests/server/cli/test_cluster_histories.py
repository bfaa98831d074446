"""What clients of three ``leveret serve --cluster`` were answered can have happened one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from rigs.etcd import Etcd
from rigs.served_cluster import nodes
from rigs.topology_histories import LOOKS, histories, judge


def test_declarations_bindings_and_deletions_have_an_order(
    tmp_path: Path, etcd: Etcd, name: str, pytestconfig: pytest.Config
) -> None:
    seed = pytestconfig.option.seed
    with nodes(tmp_path, etcd, name, "abc") as started:
        addresses = [(each.host, each.port) for each in started]
        for is_durable in (True, False):
            names = (f"x-{is_durable}", f"y-{is_durable}")
            found = histories(
                addresses, seed, names=names, clients=6, operations=40, is_durable=is_durable
            )
            for history in found.values():
                changes = [each for each in history if each.kind not in LOOKS]
                assert all(each.answered_at is not None for each in changes)
                assert not judge(history)
