"""Socket addresses as they are shown and judged."""

from __future__ import annotations

import pytest

from leveret.broker.connection import address


@pytest.mark.parametrize(
    ("peer", "shown", "is_loopback"),
    [
        (("127.0.0.1", 5672), "127.0.0.1:5672", True),
        (("127.9.9.9", 1), "127.9.9.9:1", True),
        (("::1", 5672, 0, 0), "[::1]:5672", True),
        (("::ffff:127.0.0.1", 5672, 0, 0), "127.0.0.1:5672", True),
        (("::ffff:7f00:1", 5672), "127.0.0.1:5672", True),
        (("::ffff:10.0.0.1", 5672, 0, 0), "10.0.0.1:5672", False),
        (("::ffff:0.0.0.1", 5672, 0, 0), "0.0.0.1:5672", False),
        (("::ffff:1", 5672, 0, 0), "[::ffff:1]:5672", False),
        (("fe80::1%eth0", 5672, 0, 2), "[fe80::1%eth0]:5672", False),
        (("unix:uid=0,pid=1", 3), "unix:uid=0,pid=1#3", True),
        (("10.0.0.1", 5672), "10.0.0.1:5672", False),
        (("2001:db8::1", 5672, 0, 0), "[2001:db8::1]:5672", False),
        ("/run/socket", ":0", False),
        (None, ":0", False),
    ],
)
def test_an_address_is_shown_with_its_port_and_known_as_loopback(
    peer: object, shown: str, is_loopback: bool
) -> None:
    assert address.shown(peer) == shown
    assert address.is_loopback(peer) is is_loopback
