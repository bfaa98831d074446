from __future__ import annotations

from typing import Any

import pytest

from leveret.supervisors.spec import ChildSpec, SpecError, SupervisorSpec


class Worker:
    pass


def test_flags_have_otps_defaults() -> None:
    spec = SupervisorSpec()

    found = (spec.strategy, spec.intensity, spec.period_s, spec.auto_shutdown, spec.children)
    assert found == ("one_for_one", 1, 5.0, "never", ())


@pytest.mark.parametrize(
    ("given", "shutdown"),
    [
        ({}, 5.0),
        ({"type": "supervisor"}, "infinity"),
        ({"shutdown": 0}, 0),
        ({"type": "supervisor", "shutdown": "brutal_kill"}, "brutal_kill"),
    ],
)
def test_child_specs_have_otps_defaults(given: dict[str, Any], shutdown: Any) -> None:
    spec = ChildSpec("a", Worker, **given)

    found = (spec.restart, spec.shutdown, spec.type, spec.significant)
    assert found == ("permanent", shutdown, given.get("type", "worker"), False)


@pytest.mark.parametrize(
    ("restart", "kind", "delay_s"),
    [
        ("permanent", "permanent", None),
        ("temporary", "temporary", None),
        ("intrinsic", "intrinsic", None),
        (("transient", 2.5), "transient", 2.5),
        (("permanent", 0), "permanent", 0),
        (("intrinsic", 1), "intrinsic", 1),
    ],
)
def test_a_restart_kind_may_carry_a_delay(restart: Any, kind: str, delay_s: float | None) -> None:
    spec = ChildSpec("a", Worker, restart=restart)

    assert (spec.kind, spec.delay_s) == (kind, delay_s)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ({"strategy": "one_for_two"}, ("invalid_strategy", "one_for_two")),
        ({"strategy": ["one_for_one"]}, ("invalid_strategy", ["one_for_one"])),
        ({"intensity": -1}, ("invalid_intensity", -1)),
        ({"intensity": 1.5}, ("invalid_intensity", 1.5)),
        ({"intensity": True}, ("invalid_intensity", True)),
        ({"period_s": 0}, ("invalid_period", 0)),
        ({"period_s": "5"}, ("invalid_period", "5")),
        ({"auto_shutdown": "always"}, ("invalid_auto_shutdown", "always")),
        ({"dialect": "elixir"}, ("invalid_dialect", "elixir")),
    ],
)
def test_bad_flags_are_supervisor_data(flags: dict[str, Any], reason: Any) -> None:
    with pytest.raises(SpecError) as caught:
        SupervisorSpec(**flags)

    assert (caught.value.kind, caught.value.reason) == ("supervisor_data", reason)


@pytest.mark.parametrize(
    ("child", "reason"),
    [
        ({"id": None}, "missing_id"),
        ({"id": ["a"]}, ("invalid_id", ["a"])),
        ({"actor_class": None}, "missing_start"),
        ({"restart": "always"}, ("invalid_restart_type", "always")),
        ({"restart": ("temporary", 1)}, ("invalid_restart_type", ("temporary", 1))),
        ({"restart": ("transient", -1)}, ("invalid_delay", -1)),
        ({"restart": ("transient", "1")}, ("invalid_delay", "1")),
        ({"shutdown": -1}, ("invalid_shutdown", -1)),
        ({"shutdown": "soon"}, ("invalid_shutdown", "soon")),
        ({"type": "server"}, ("invalid_child_type", "server")),
        ({"significant": 1}, ("invalid_significant", 1)),
        (
            {"significant": True},
            ("bad_combination", (("restart", "permanent"), ("significant", True))),
        ),
        (
            {"significant": True, "restart": "intrinsic"},
            ("bad_combination", (("restart", "intrinsic"), ("significant", True))),
        ),
    ],
)
def test_a_bad_child_spec_is_start_spec(child: dict[str, Any], reason: Any) -> None:
    with pytest.raises(SpecError) as caught:
        ChildSpec(**{"id": "a", "actor_class": Worker, **child})

    assert (caught.value.kind, caught.value.reason) == ("start_spec", reason)


@pytest.mark.parametrize(
    ("flags", "kind", "reason"),
    [
        (
            {"children": (ChildSpec("a", Worker), ChildSpec("a", Worker))},
            "start_spec",
            ("duplicate_child_name", "a"),
        ),
        ({"children": ("a",)}, "start_spec", ("invalid_child_spec", "a")),
        (
            {"children": (ChildSpec("a", Worker, restart="transient", significant=True),)},
            "start_spec",
            ("bad_combination", (("auto_shutdown", "never"), ("significant", True))),
        ),
        ({"strategy": "simple_one_for_one"}, "bad_start_spec", ()),
        (
            {
                "strategy": "simple_one_for_one",
                "children": (ChildSpec("a", Worker), ChildSpec("b", Worker)),
            },
            "bad_start_spec",
            (ChildSpec("a", Worker), ChildSpec("b", Worker)),
        ),
    ],
)
def test_children_must_fit_the_supervisor(flags: dict[str, Any], kind: str, reason: Any) -> None:
    with pytest.raises(SpecError) as caught:
        SupervisorSpec(**flags)

    assert (caught.value.kind, caught.value.reason) == (kind, reason)


def test_a_label_is_a_text_or_made_of_the_arguments() -> None:
    plain = ChildSpec("a", Worker)
    named = ChildSpec("a", Worker, label="backing")
    made = ChildSpec("a", Worker, label=lambda vhost, name: f"queue:{name}")

    labels = [spec.label_of(("/", "orders")) for spec in (plain, named, made)]
    assert (labels, made.label_of(None)) == (["a", "backing", "queue:orders"], "a")
