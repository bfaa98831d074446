from __future__ import annotations

import pickle
import stat
from pathlib import Path

import pytest

from leveret.spark.errors import OptionError
from leveret.spark.publish.options import parse
from leveret.spark.publish.target import Tls, UriSource, parse_uri

SECRET = "s3cr3t/@:"
QUOTED = "s3cr3t%2F%40%3A"
URI = f"amqps://app:{QUOTED}@broker.example:5999/prod%2Fa"


def no_conf(_name: str) -> None:
    return None


def test_a_malformed_uri_is_named_by_its_place_only() -> None:
    with pytest.raises(OptionError, match=r"^uriFile x is not amqp"):
        parse_uri("amqp://", "uriFile x")


def test_a_uri_comes_from_a_file_the_environment_or_a_conf(tmp_path: Path) -> None:
    file = tmp_path / "uri"
    file.write_text(f"{URI}\nnot this\n")
    expected = parse_uri(URI, "")

    assert UriSource(file=str(file)).read(no_conf) == expected
    assert UriSource(environment="X").read(no_conf, {"X": URI}) == expected
    assert (
        UriSource(conf="spark.leveret.secret.uri").read({"spark.leveret.secret.uri": URI}.get)
        == expected
    )


@pytest.mark.parametrize(
    "source",
    [UriSource(file="/nowhere"), UriSource(environment="X"), UriSource(conf="spark.x.secret")],
)
def test_a_missing_uri_is_an_error(source: UriSource) -> None:
    with pytest.raises(OptionError, match=r"cannot be read|is not set"):
        source.read(no_conf, {})


@pytest.mark.parametrize("conf", ["spark.leveret.uri", "leveret.secret"])
def test_a_conf_that_spark_would_show_is_refused(conf: str) -> None:
    with pytest.raises(OptionError, match="would be shown"):
        UriSource(conf=conf)


def test_a_password_in_the_option_is_refused_and_not_repeated() -> None:
    with pytest.raises(OptionError, match="uriFile") as caught:
        parse({"uri": URI})

    assert "s3cr3t" not in str(caught.value)


def test_a_target_shows_no_password_and_keeps_it_on_the_way_to_a_task() -> None:
    target = parse_uri(URI, "")

    assert "s3cr3t" not in f"{target} {target!r}"
    assert pickle.loads(pickle.dumps(target)).password == SECRET


def test_files_of_tls_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    garbage = tmp_path / "ca.pem"
    garbage.write_text("not a certificate")
    garbage.chmod(stat.S_IRUSR)

    with pytest.raises(OptionError, match=r"tls\.ca: .*ca\.pem"):
        Tls(ca=str(garbage)).context()
    with pytest.raises(OptionError, match=r"tls\.cert.*/nowhere"):
        Tls(cert="/nowhere").context()
