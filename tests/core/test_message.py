"""Origins of messages, with and without the keys of BCC."""

from __future__ import annotations

import pytest

from leveret.core.message import blind_keys_of, exchange_and_key, origin_of

PLAIN = origin_of(b"ex", b"key")
BLIND = origin_of(b"ex", b"key", b"a", b"")


def test_an_origin_is_the_end_of_a_delivery_whatever_it_hides() -> None:
    for origin in (PLAIN, BLIND):
        assert b"" + origin == b"\x02ex\x03key"
        assert exchange_and_key(origin) == (b"ex", b"key")
        assert type(b"".join([origin, b"."])) is bytes
    assert (blind_keys_of(PLAIN), blind_keys_of(BLIND)) == ((), (b"a", b""))


@pytest.mark.parametrize(
    ("other", "is_equal"),
    [
        (origin_of(b"ex", b"key", b"a", b""), True),
        (origin_of(b"ex", b"key", b"a"), False),
        (origin_of(b"ey", b"key", b"a", b""), False),
        (PLAIN, False),
        (None, False),
    ],
)
def test_origins_that_differ_in_their_blind_keys_are_not_equal(
    other: object, is_equal: bool
) -> None:
    for one, two in ((other, BLIND), (BLIND, other)):
        assert (one == two, one != two) == (is_equal, not is_equal)
    assert len({(BLIND, b"head"), (other, b"head")}) == (1 if is_equal else 2)
