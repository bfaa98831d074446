"""Sizes as RabbitMQ reads them."""

from __future__ import annotations

import pytest

from leveret.core.sizes import SizeLimit, parse_size

# What rabbit_resource_monitor_misc:parse_information_unit/1 of 3.10.8 answers for 10 and the unit.
UNITS = [
    ("", 10),
    ("k", 10_240),
    ("kB", 10_000),
    ("KB", 10_000),
    ("kb", 10_000),
    ("K", 10_240),
    ("kiB", 10_240),
    ("kib", 10_240),
    ("m", 10_485_760),
    ("M", 10_485_760),
    ("MB", 10_000_000),
    ("mb", 10_000_000),
    ("MiB", 10_485_760),
    ("G", 10_737_418_240),
    ("g", 10_737_418_240),
    ("GB", 10_000_000_000),
    ("GiB", 10_737_418_240),
    ("gib", 10_737_418_240),
]


@pytest.mark.parametrize(("unit", "size_bytes"), UNITS)
def test_units_are_rabbitmqs(unit: str, size_bytes: int) -> None:
    assert parse_size(f"10{unit}") == size_bytes


@pytest.mark.parametrize("text", ["", "k", "10T", "10b", "10 MB", "10MB ", "-1", "1.5GB", "٣"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a size such as"):
        parse_size(text)


def test_a_limit_is_bytes_or_a_share() -> None:
    assert SizeLimit(5).of(1_000) == 5
    assert SizeLimit(share=0.4).of(1_000) == 400
    assert [str(SizeLimit(5)), str(SizeLimit(share=0.4))] == ["5", "0.4"]
