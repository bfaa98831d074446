"""Paths name actors of a tree; the error for an unknown path names the nearest actor."""

from __future__ import annotations

import pytest

from leveret.actors.runtime.actor_ref import ActorRef
from leveret.actors.runtime.ref import Cell
from leveret.supervisors.tree_view import Node
from leveret.testing.tree_paths import Path, PathError, find_all, labels_of

ORDERS = ("leveret", "vhosts", "vhost:/", "queues", "queue:orders")
LABELS = (
    ("leveret",),
    ("leveret", "vhosts"),
    ("leveret", "vhosts", "vhost:/"),
    ("leveret", "vhosts", "vhost:/", "queues"),
    ORDERS,
    (*ORDERS, "backing"),
    (*ORDERS, "amqqueue"),
    ("leveret", "vhosts", "vhost:/", "queues", "queue:a > b"),
    ("leveret", "vhosts", "vhost:other"),
    ("leveret", "vhosts", "vhost:other", "queues"),
    ("leveret", "vhosts", "vhost:other", "queues", "queue:orders"),
    ("leveret", "vhosts", "vhost:other", "queues", "queue:orders", "backing"),
)
NODES = [
    Node(labels, "Actor", "worker", ActorRef("test", number, Cell()), "running", 0, 0)
    for number, labels in enumerate(LABELS)
]


def found(path: Path) -> list[tuple[str, ...]]:
    return [node.labels for node in find_all(NODES, path)]


@pytest.mark.parametrize(
    "path",
    [
        "leveret > vhosts > vhost:/ > queues > queue:orders > backing",
        "vhost:/ > queue:orders > backing",
        "vhost:/ > backing",
        ("vhost:/", "queue:orders", "backing"),
    ],
)
def test_levels_may_be_left_out(path: Path) -> None:
    assert found(path) == [(*ORDERS, "backing")]


def test_a_node_names_itself() -> None:
    assert found(NODES[5]) == [NODES[5].labels]


def test_a_star_names_all_that_are_like_it() -> None:
    assert len(found("queue:*")) == 3
    assert found("vhost:o* > *") == list(LABELS[9:])
    assert len(found("*")) == len(LABELS)


def test_a_label_with_the_separator_is_given_in_a_tuple() -> None:
    assert found(("vhost:/", "queue:a > b")) == [LABELS[7]]


def test_a_path_that_names_many_actors_says_which() -> None:
    with pytest.raises(PathError) as error:
        found("queue:orders > backing")

    assert str(error.value).splitlines() == [
        '"queue:orders > backing" names 2 actors:',
        "  leveret > vhosts > vhost:/ > queues > queue:orders > backing",
        "  leveret > vhosts > vhost:other > queues > queue:orders > backing",
    ]


def test_a_path_that_names_nobody_says_what_is_nearest() -> None:
    with pytest.raises(PathError) as error:
        found("vhost:/ > queue:ordres > backing")

    assert str(error.value).splitlines() == [
        'no actor is at "vhost:/ > queue:ordres > backing"',
        "did you mean queue:orders?",
    ]


def test_a_queue_that_is_like_none_is_not_another_kind_of_actor() -> None:
    with pytest.raises(PathError) as error:
        find_all(NODES[:4], "queue:orders")

    assert str(error.value).splitlines() == [
        'no actor is at "queue:orders"',
        "the nearest there is: leveret",
        "its children: vhosts",
    ]


def test_a_path_of_nothing_known_names_the_root() -> None:
    with pytest.raises(PathError, match=r"(?s)nearest there is: leveret\n.*children: vhosts"):
        found("nowhere")


def test_a_child_that_does_not_run_is_not_missing() -> None:
    waiting = Node(("leveret", "disk_watch"), "DiskWatch", "worker", None, "restarting", 1, 0)

    with pytest.raises(PathError, match="disk_watch does not run: it is restarting"):
        find_all([*NODES, waiting], "disk_watch")


def test_a_tree_that_has_ended_says_so() -> None:
    with pytest.raises(PathError, match="the tree has ended"):
        find_all([], "leveret")


@pytest.mark.parametrize("path", ["", " > ", "a >  > b", ()])
def test_a_path_has_labels(path: Path) -> None:
    with pytest.raises(PathError, match="is no path"):
        labels_of(path)
