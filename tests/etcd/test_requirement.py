"""Without etcd its tests are skipped on a developer's machine, and fail in continuous integration."""

from __future__ import annotations

from pathlib import Path

import pytest

from rigs.cluster import etcd


@pytest.fixture
def _missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(etcd, "PROGRAM", str(tmp_path / "etcd"))


@pytest.mark.usefixtures("_missing")
def test_where_there_is_no_etcd_the_tests_are_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="install etcd-server"):
        etcd.Etcd(tmp_path)


@pytest.mark.usefixtures("_missing")
def test_in_continuous_integration_a_missing_etcd_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="install etcd-server"):
        etcd.Etcd(tmp_path)
