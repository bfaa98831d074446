"""Messages between nodes keep the names under which they were first sent, wherever their classes are by now."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from leveret.actors.links.sendable import form_named

# What registers messages; a node of a cluster has all of it loaded.
for module in ("gm.node_links", "gm.store_server", "server.broker", "supervisors.requests"):
    importlib.import_module(f"leveret.{module}")

LINES = (Path(__file__).parent / "data/names_between_nodes.txt").read_text().splitlines()


@pytest.mark.parametrize("name", LINES[1:])
def test_a_node_reads_what_older_nodes_send(name: str) -> None:
    assert form_named(name).name == name
