"""Loaded sources of ``AsyncioBase`` go when they are unloaded, but not under the actors made of them."""

from __future__ import annotations

import io
import sys
import zipfile
from typing import Any

import pytest
from thespian.actors import InvalidActorSourceHash, ValidatedSource

from leveret.actors.thespian.sources import Sources

HASH = "5eed"

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*not found; falling back:ImportWarning"
)  # Thespian


@pytest.fixture
def sources() -> Sources:
    """Sources of which one is loaded; it holds a module ``barn`` with a class ``Cow``."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("barn.py", "class Cow: pass\n")
    sources = Sources(lambda _to, _message: None)
    sources.validated(ValidatedSource(HASH, file.getvalue(), ""))
    return sources


def modules() -> list[str]:
    return [name for name in sys.modules if HASH in name]


def finders() -> list[Any]:
    return [finder for finder in sys.meta_path if getattr(finder, "srcHash", None) == HASH]


def test_an_unloaded_source_leaves_nothing_behind(sources: Sources) -> None:
    assert sources.find(HASH)("barn", "Cow").__name__ == "Cow"
    assert modules()

    sources.unload(HASH)

    assert not modules()
    assert not finders()


def test_it_stays_importable_until_the_last_actor_made_of_it_has_ended(sources: Sources) -> None:
    sources.find(HASH)("barn", "Cow")
    first_ended, last_ended = sources.use(HASH), sources.use(HASH)

    sources.unload(HASH)
    first_ended("normal")

    assert modules()
    assert finders()
    with pytest.raises(InvalidActorSourceHash):
        sources.find(HASH)("barn", "Cow")

    last_ended("normal")

    assert not modules()
    assert not finders()


def test_the_end_of_its_actors_does_not_unload_it(sources: Sources) -> None:
    sources.find(HASH)("barn", "Cow")

    sources.use(HASH)("normal")

    assert modules()
    sources.unload_all()
    assert not modules()
