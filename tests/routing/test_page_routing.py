"""The examples of docs/routing.md are one program; it runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from leveret.routing import exchange

PAGE = Path(__file__).parents[2] / "docs" / "routing.md"


def test_the_examples_of_the_page_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_TYPES", dict(exchange._TYPES))  # it registers one
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 4
    page: dict[str, Any] = {"__name__": "page"}

    exec(compile("\n".join(blocks), str(PAGE), "exec"), page)

    assert [entry.name for entry in page["routed"].queues] == ["all"]
