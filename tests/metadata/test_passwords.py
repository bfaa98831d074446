"""Password hashes: RabbitMQ's published example, and hashes that a node made."""

from __future__ import annotations

from base64 import b64decode, b64encode

import pytest

from leveret.metadata.passwords import (
    MD5,
    SHA256,
    SHA512,
    hash_password,
    verify_password,
)


def test_the_example_of_rabbitmqs_documentation_comes_out() -> None:
    stored = hash_password(b"test12", bytes.fromhex("908DC60A"))

    assert b64encode(stored) == b"kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"


@pytest.mark.parametrize(
    ("password", "recorded"),
    [
        (b"guest", "3dnK1iBwzypA2+DUuchmm/ewB71RMAugaVkEbTXYOm+JZq5v"),
        (b"bob secret", "DAk09VzrwNfMe+1Cdh4m5L74xk1wqZbDd7uXJNTabTcwmPBk"),
    ],
)
def test_hashes_recorded_from_a_node_are_verified(password: bytes, recorded: str) -> None:
    assert verify_password(password, b64decode(recorded))
    assert not verify_password(password + b"x", b64decode(recorded))


@pytest.mark.parametrize(("algorithm", "size"), [(SHA256, 32), (SHA512, 64), (MD5, 16)])
def test_each_algorithm_verifies_its_own_hash_only(algorithm: str, size: int) -> None:
    stored = hash_password("pässword".encode(), b"salt", algorithm)

    assert len(stored) == 4 + size
    for other in (SHA256, SHA512, MD5):
        assert verify_password("pässword".encode(), stored, other) is (other == algorithm)


@pytest.mark.parametrize(
    ("password", "stored", "algorithm"),
    [
        (b"", hash_password(b"", b"salt"), SHA256),
        (b"", b"", SHA256),
        (b"x", b"", SHA256),
        (b"x", b"salt", SHA256),
        (b"x", hash_password(b"x", b"salt"), "rabbit_password_hashing_rot13"),
    ],
)
def test_nothing_and_the_unknown_never_match(
    password: bytes, stored: bytes, algorithm: str
) -> None:
    assert not verify_password(password, stored, algorithm)


def test_a_salt_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="salt of 3 bytes, 4 are used"):
        hash_password(b"x", b"sal")
