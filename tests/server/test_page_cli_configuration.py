"""The pages say what the code does."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from leveret.server.cli.commands import COMMANDS
from leveret.server.config.config import Config
from leveret.server.config.keys import KEYS, WITHOUT_EFFECT
from leveret.server.perf import args
from leveret.server.store_tools.command import EX_DAMAGED

DOCS = Path(__file__).parents[2] / "docs"


def rows(page: str, columns: int, section: str = "") -> list[list[str]]:
    """Return the rows of the page's tables, or of a section's, which begins with this heading."""
    text = (DOCS / page).read_text("utf-8")
    if section:
        text = text.partition(f"\n{section}")[2].partition("\n## ")[0]
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == columns:
            found.append(cells)
    return found


def code_words(cell: str) -> list[str]:
    return re.findall(r"`([^`]*)`", cell)


def test_the_table_of_keys_is_that_of_the_code() -> None:
    documented = {code_words(row[0])[0]: row for row in rows("configuration.md", 5)}

    assert list(documented) == [key.native for key in KEYS]
    for key in KEYS:
        _, unit, default, rabbitmq, about = documented[key.native]
        value = getattr(Config(), key.field)
        values = list(value) if isinstance(value, tuple) else [value]
        values = [str(each).lower() if isinstance(each, bool) else str(each) for each in values]
        assert unit == (key.unit or "-"), key.native
        assert default == "none" if value is None else code_words(default) == values
        assert code_words(rabbitmq) == key.rabbitmq.split(), key.native
        assert about, key.native


def test_the_keys_without_effect_are_told() -> None:
    documented = {code_words(row[0])[0]: row[1] for row in rows("configuration.md", 2)}

    assert documented == WITHOUT_EFFECT


def test_every_verb_has_its_line() -> None:
    documented = [code_words(row[0])[0] for row in rows("cli.md", 2, "## `leveret ctl")]

    assert documented == [each.verb for each in COMMANDS]


def test_every_exit_code_has_its_line() -> None:
    page = (DOCS / "cli.md").read_text("utf-8")
    codes = [int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)]

    assert codes == [
        0,
        EX_DAMAGED,
        os.EX_USAGE,
        os.EX_DATAERR,
        os.EX_NOUSER,
        os.EX_UNAVAILABLE,
        os.EX_SOFTWARE,
        os.EX_OSERR,
        os.EX_IOERR,
        os.EX_TEMPFAIL,
        os.EX_CONFIG,
    ]


def test_every_option_of_perf_is_told() -> None:
    page = (DOCS / "cli.md").read_text("utf-8")
    for action in args.parser()._actions:
        if action.dest != "help":
            assert any(
                f"`{name}" in page or f" {name}" in page for name in action.option_strings
            ), action.option_strings


def examples() -> list[str]:
    page = (DOCS / "cli.md").read_text("utf-8")
    return re.findall(r"^    leveret perf (.*?) *(?:#.*)?$", page, re.MULTILINE)


@pytest.mark.parametrize("example", examples())
def test_the_examples_of_perf_can_be_typed(example: str) -> None:
    args.parse(example.replace("'", "").split())


def test_the_page_of_the_log_knows_the_lines_about_clients() -> None:
    page = (DOCS / "logging.md").read_text("utf-8")
    sources = ["connection/connection_log.py", "connection/alarms.py", "channel/channel.py"]
    calls = r'log\.(?:info|warning|error|log)\(\s*(?:self\._level[^,]*,\s*)?"([^"%]*) \w+=%s'
    broker = DOCS.parent / "broker"

    events = {event for file in sources for event in re.findall(calls, (broker / file).read_text())}

    assert len(events) == 11
    assert {event for event in events if f"`{event}`" not in page} == set()
