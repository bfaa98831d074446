"""Methods: pamqp agrees on every one, wrong bytes are refused.

Tests: amqp/errors.py, amqp/fields.py, amqp/spec.py
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands

from leveret.amqp import methods, spec
from leveret.amqp.errors import CommandInvalid, FrameError, SyntaxError_
from leveret.amqp.fields import Method

CLASSES = {cls.IDS: cls for cls in Method.__subclasses__()}
PAMQP_NAMES = {"global_": "global_", "type": "exchange_type"}
TABLE = {"a": ("S", b"text"), "b": ("t", True), "c": ("F", {"d": ("V", None)})}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bit": st.booleans(),
    "octet": st.integers(0, 255),
    "short": st.integers(0, 2**16 - 1),
    "long": st.integers(0, 2**32 - 1),
    "longlong": st.integers(0, 2**63 - 1),  # pamqp takes larger ones for negative
    "shortstr": st.text(st.characters(codec="ascii"), max_size=255),
    "longstr": st.binary(max_size=300),
    "table": st.sampled_from([{}, TABLE]),
}


def fields_of(ids: int) -> list[tuple[str, str]]:
    words = spec.FIELDS[ids].split()
    return [(name, kind) for name, _, kind in (word.partition(":") for word in words)]


def method_strategy(ids: int) -> st.SearchStrategy[Method]:
    kept = {name: VALUES[kind] for name, kind in fields_of(ids) if not name.startswith("-")}
    return st.builds(CLASSES[ids], **kept)


ANY_METHOD = st.sampled_from(sorted(CLASSES)).flatmap(method_strategy)


def test_there_is_a_class_for_every_method() -> None:
    assert set(CLASSES) == set(spec.FIELDS) == set(spec.METHOD_NAMES)
    assert {cls.NAME for cls in CLASSES.values()} == set(spec.METHOD_NAMES.values())


@pytest.mark.parametrize("ids", sorted(set(spec.FIELDS) & set(commands.INDEX_MAPPING)))
def test_ids_names_and_fields_are_pamqps(ids: int) -> None:
    theirs = commands.INDEX_MAPPING[ids]
    name = spec.METHOD_NAMES[ids].replace(".", "").replace("-", "")

    assert theirs.name.replace(".", "").lower() == name
    assert [kind for _, kind in fields_of(ids)] == [
        theirs.amqp_type(name) for name in theirs.attributes()
    ]
    assert [PAMQP_NAMES.get(name.lstrip("-"), name.lstrip("-")) for name, _ in fields_of(ids)] == (
        theirs.attributes()
    )


def test_pamqp_knows_all_but_the_access_class() -> None:
    unknown = set(spec.FIELDS) - set(commands.INDEX_MAPPING)

    assert unknown == {spec.ACCESS_REQUEST, spec.ACCESS_REQUEST_OK}


@pytest.mark.parametrize(
    ("method", "payload"),
    [
        (
            methods.AccessRequest("/data", False, True, True, False, True),
            "001e000a 052f64617461 16",
        ),
        (methods.AccessRequestOk(1), "001e000b 0001"),
        (methods.ExchangeUnbindOk(), "00280033"),
        (methods.ChannelOpenOk(), "0014000b 00000000"),
        (methods.ConnectionOpen("/"), "000a0028 012f 00 00"),
        (methods.BasicNack(5, True, False), "003c0078 0000000000000005 01"),
        (methods.BasicGetEmpty(), "003c0048 00"),
        (
            methods.QueueDeclare("q", durable=True, nowait=True, arguments={"x": ("I", 5)}),
            "0032000a 0000 0171 12 00000007 0178 49 00000005",
        ),
        (methods.BasicConsume("q", "t", exclusive=True), "003c0014 0000 0171 0174 04 00000000"),
    ],
)
def test_bytes_of_some_methods(method: Method, payload: str) -> None:
    wire = bytes.fromhex(payload)

    assert methods.encode(method) == wire
    assert methods.decode(method.IDS, wire[4:]) == method


@given(ANY_METHOD)
def test_every_method_comes_back_as_it_was_written(method: Method) -> None:
    wire = methods.encode(method)

    assert int.from_bytes(wire[:4], "big") == method.IDS
    assert methods.decode(method.IDS, wire[4:]) == method


@pytest.mark.filterwarnings("ignore:This command is deprecated:DeprecationWarning")
@given(ANY_METHOD)
def test_pamqp_reads_what_is_written(method: Method) -> None:
    theirs_class = commands.INDEX_MAPPING.get(method.IDS)
    if theirs_class is None:
        return
    theirs = theirs_class()
    theirs.unmarshal(methods.encode(method)[4:])

    for name, kind in fields_of(method.IDS):
        if name.startswith("-"):
            continue
        ours = getattr(method, name)
        if kind == "table":
            ours = {"a": "text", "b": True, "c": {"d": None}} if ours else {}
        found = getattr(theirs, PAMQP_NAMES.get(name, name))
        if kind == "longstr" and isinstance(found, str):
            found = found.encode()
        assert found == ours, name


@given(ANY_METHOD)
def test_one_octet_too_few_or_too_many_is_refused(method: Method) -> None:
    arguments = methods.encode(method)[4:]

    wrong = [arguments + b"\x00", *([arguments[:-1]] if arguments else [])]
    for octets in wrong:
        with pytest.raises(FrameError, match="cannot decode <<") as refused:
            methods.decode(method.IDS, octets)
        assert refused.value.method == method.IDS


def test_the_refusal_shows_the_arguments_as_erlang_writes_octets() -> None:
    with pytest.raises(FrameError) as refused:
        methods.decode(spec.QUEUE_DECLARE, b"\x00a")

    assert str(refused.value) == "FRAME_ERROR - cannot decode <<0,97>>"


@pytest.mark.parametrize(
    "method",
    [
        methods.ConnectionStartOk(response=b"\0user\0secret"),
        methods.ConnectionSecureOk(b"secret"),
        methods.ConnectionUpdateSecret(b"secret", "it is time"),
    ],
)
def test_the_refusal_does_not_show_a_password(method: Method) -> None:
    with pytest.raises(FrameError) as refused:
        methods.decode(method.IDS, methods.encode(method)[4:-1])

    assert str(refused.value) == "FRAME_ERROR - cannot decode <<>>"


def test_the_refusal_of_long_arguments_is_cut() -> None:
    with pytest.raises(FrameError) as refused:
        methods.decode(spec.BASIC_QOS, b"\xff" * 100_000)

    full = b"FRAME_ERROR - cannot decode <<" + b"255," * 100
    assert refused.value.text == full[:252] + b"..."


@pytest.mark.parametrize(("class_id", "method_id"), [(60, 999), (99, 1), (0, 0), (65535, 65535)])
def test_unknown_methods_are_refused(class_id: int, method_id: int) -> None:
    ids = class_id << 16 | method_id

    with pytest.raises(CommandInvalid) as refused:
        methods.decode(ids, b"")

    assert str(refused.value) == f"COMMAND_INVALID - unknown method {{{class_id},{method_id}}}"
    assert refused.value.method == ids


def test_a_table_that_is_wrong_inside_is_a_syntax_error() -> None:
    arguments = methods.encode(methods.QueueDeclare("q"))[4:-4] + b"\x00\x00\x00\x03\x01aZ"

    with pytest.raises(SyntaxError_):
        methods.decode(spec.QUEUE_DECLARE, arguments)


def test_two_methods_do_not_share_their_arguments() -> None:
    first, second = methods.QueueDeclare("a"), methods.QueueDeclare("b")
    first.arguments["x"] = ("I", 1)

    assert second.arguments == {}


def test_a_method_frame_is_payload_between_head_and_end() -> None:
    assert methods.method_frame(258, b"\x00\x14\x00\x0b") == bytes.fromhex(
        "01 0102 00000004 0014000b ce"
    )


@pytest.mark.parametrize(
    ("octets", "is_taken"),
    [
        ("ünï☃😀".encode(), True),
        (b"\x00\x7f", True),
        (b"\xed\xa0\x80", True),  # a surrogate
        (b"\xf7\xbf\xbf\xbf", True),  # above 10FFFF
        (b"\xff", False),
        (b"\x80", False),
        (b"a\xc3", False),
        (b"\xc1\xbf", False),
        (b"\xe0\x9f\xbf", False),
        (b"\xf0\x8f\xbf\xbf", False),
        (b"\xf8\x88\x80\x80\x80", False),
    ],
)
def test_short_strings_are_the_utf_8_that_rabbitmq_takes(octets: bytes, is_taken: bool) -> None:
    arguments = b"%c%b\x00" % (len(octets), octets)

    if is_taken:
        method = methods.decode(spec.BASIC_CANCEL, arguments)
        assert method == methods.BasicCancel(octets.decode("utf-8", "surrogateescape"), False)
        assert methods.encode(method)[4:] == arguments
    else:
        with pytest.raises(FrameError, match="Malformed UTF-8 in shortstr") as caught:
            methods.decode(spec.BASIC_CANCEL, arguments)
        assert caught.value.method == 0


def test_short_strings_of_methods_with_a_content_may_be_anything() -> None:
    arguments = b"\x00\x00" + b"\x01\xff" * 2 + b"\x00"

    method = methods.decode(spec.BASIC_PUBLISH, arguments)

    assert method == methods.BasicPublish("\udcff", "\udcff")
    assert methods.encode(method)[4:] == arguments
