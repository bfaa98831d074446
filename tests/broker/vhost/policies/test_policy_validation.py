"""What policies may say: answers of RabbitMQ 3.10.8, recorded with rabbit_policy:parse_set.

Tests: routing/json_terms.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from leveret.broker.vhost.policies.policy_validation import PolicyError, check, check_definition
from leveret.metadata.tables import PolicyRow

RECORDED = json.loads(
    (Path(__file__).parents[2] / "data" / "policy_answers.json").read_text(encoding="utf-8")
)


def answer(definition: str, is_operator: bool) -> str:
    try:
        parsed = json.loads(definition)
    except ValueError:
        return "JSON decoding error. Reason: badarg"
    try:
        check_definition(parsed, is_operator)
    except PolicyError as error:
        return str(error)
    return "ok"


@pytest.mark.parametrize(("kind", "definition", "expected"), RECORDED)
def test_definitions_are_taken_and_refused_as_by_rabbitmq(
    kind: str, definition: str, expected: str
) -> None:
    assert answer(definition, kind == "operator_policy") == expected


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        ([], "definition must be a dictionary: []"),
        ("x", 'definition must be a dictionary: <<"x">>'),
        ({"max-age": "D"}, '<<"D">> is not a valid max age'),
        ({"max-age": 5}, "5 is not a valid max age"),
        ({"max-length": True}, "true is not a valid maximum length"),
        ({"queue-version": True}, "true is not a valid queue-version value"),
        ({"queue-version": 1.0}, "1.0 is not a valid queue-version value"),
        ({"ha-mode": 5}, "5 is not a valid ha-mode value"),
        ({"ha-mode": "nodes", "ha-params": "a"}, 'ha-mode="nodes" takes a list, <<"a">> given'),
        ({"queue-master-locator": ["x"]}, '[<<"x">>] invalid queue-master-locator value'),
    ],
)
def test_where_rabbitmq_crashes_the_value_is_refused(definition: Any, text: str) -> None:
    with pytest.raises(PolicyError) as refused:
        check_definition(definition, is_operator=False)

    assert str(refused.value) == text


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"priority": "5"}, 'priority should be number, actually was <<"5">>'),
        ({"priority": True}, "priority should be number, actually was true"),
        ({"pattern": 5}, "pattern should be a binary but was 5"),
    ],
)
def test_priority_and_pattern_are_what_they_are_taken_for(changes: Any, text: str) -> None:
    row = PolicyRow("/", "p", "", {"expires": 1})
    for name, value in changes.items():
        setattr(row, name, value)

    with pytest.raises(PolicyError) as refused:
        check(row)

    assert str(refused.value) == text


@pytest.mark.parametrize(
    ("pattern", "apply_to", "text"),
    [
        ("^a(", "all", 'pattern should be regular expression but is invalid: {"missing )",3}'),
        ("^a", "foo", "apply-to 'foo' unrecognised; should be 'queues', 'exchanges' or 'all'"),
        ("(", "foo", 'pattern should be regular expression but is invalid: {"missing )",1}'),
    ],
)
def test_pattern_and_apply_to_are_checked_before_the_definition(
    pattern: str, apply_to: str, text: str
) -> None:
    with pytest.raises(PolicyError) as refused:
        check(PolicyRow("/", "p", pattern, {"bogus": 1}, 0, apply_to))

    assert str(refused.value) == text
