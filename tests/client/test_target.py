from __future__ import annotations

import pytest

from leveret.client.target import Target, parse_uri


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("amqps://app:s3c%2F%40@b.example:5999/prod%2Fa", Target("b.example", 5999, "app", "s3c/@", "prod/a", True)),
        ("amqp://h", Target("h", 5672, "guest", "guest", "/")),
        (" amqps://h/\n", Target("h", 5671, "guest", "guest", "/", True)),
        ("amqp://u@h:1/v", Target("h", 1, "u", "", "v")),
        ("amqp://[::1]:7", Target("::1", 7, "guest", "guest", "/")),
    ],
)  # fmt: skip
def test_uris_are_parsed(uri: str, expected: Target) -> None:
    assert parse_uri(uri, "here") == expected


@pytest.mark.parametrize(
    "uri", ["", "h:5672", "http://h", "amqp://", "amqp://u:p@h:port", "amqp://u:s3cr3t@h?x=1"]
)
def test_a_malformed_uri_is_named_by_its_place_only(uri: str) -> None:
    with pytest.raises(ValueError, match=r"^--uri is not amqp\[s\]://") as caught:
        parse_uri(uri, "--uri")

    assert "s3cr3t" not in str(caught.value)


def test_a_host_may_be_understood() -> None:
    assert parse_uri("amqp://", "here", "127.0.0.1").host == "127.0.0.1"
    assert parse_uri("amqp://h", "here", "127.0.0.1").host == "h"


def test_a_target_shows_no_password() -> None:
    target = parse_uri("amqps://app:s3cr3t@h/v", "here")

    assert str(target) == "amqps://h:5671 vhost v"
    assert "s3cr3t" not in repr(target)
