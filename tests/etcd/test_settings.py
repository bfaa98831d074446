"""Settings of the shared store: what is refused, and with which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leveret.core.errors import ConfigError
from leveret.etcd.settings import EtcdSettings

ONE = ("http://a:1",)

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"endpoints": ()}, "0 endpoints"),
    ({"endpoints": ONE * 33}, "33 endpoints"),
    ({"endpoints": ("a:1",)}, "'a:1' of etcd is not http"),
    ({"endpoints": ("ftp://a:1",)}, "is not http"),
    ({"endpoints": ("http://a",)}, "is not http://HOST:PORT"),
    ({"endpoints": ("http://:1",)}, "is not http"),
    ({"endpoints": ("http://a:x",)}, "'http://a:x' of etcd: Port"),
    ({"endpoints": ("http://a:1/path",)}, "is not http"),
    ({"endpoints": ("http://user:pw@a:1",)}, "is not http"),
    ({"endpoints": ("http://a:1?x",)}, "is not http"),
    ({"endpoints": ("http://a:1", "https://a:1")}, "http and https"),
    ({"timeout_s": 0.0}, "timeout_s is 0.0"),
    ({"timeout_s": float("inf")}, "finite"),
    ({"timeout_s": float("nan")}, "above 0"),
    ({"connect_timeout_s": -1.0}, "connect_timeout_s is -1.0"),
    ({"user": "u"}, "both user and password"),
    ({"password": "p"}, "both user and password"),
    ({"endpoints": ("https://a:1",), "cert_file": Path("c")}, "both cert_file and key_file"),
    ({"ca_file": Path("c")}, "use https"),
]


@pytest.mark.parametrize(("given", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_settings_that_cannot_work_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        EtcdSettings(**{"endpoints": ONE} | given)


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(EtcdSettings(ONE, user="u", password="secret"))


def test_endpoints_may_end_with_a_slash_and_be_addresses_of_ipv6() -> None:
    assert not EtcdSettings(("http://[::1]:2379/", "http://10.0.0.1:2379")).is_tls


def test_certificates_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    missing, wrong = tmp_path / "missing.pem", tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    for file in (missing, wrong):
        with pytest.raises(ConfigError, match=file.name):
            EtcdSettings(("https://a:1",), ca_file=file).tls()
