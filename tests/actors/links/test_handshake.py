"""The handshake: who gets in, and what a stranger costs."""

from __future__ import annotations

import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.actors.links.handshake import (
    HANDSHAKE_BYTES_MAX,
    Claim,
    Handshake,
    HandshakeError,
    Verdict,
)

SECRET = b"a secret of tests"


def side(
    node: str, is_dialler: bool, secret: bytes = SECRET, nonce: bytes = b"", incarnation: int = 1
) -> Handshake:
    nonce = nonce or node.encode()[:1] * 32
    return Handshake(node, secret, nonce, is_dialler, lambda *_: Claim(incarnation, 7, 3))


def play(one: Handshake, other: Handshake, cut: int = 1000) -> None:
    """Let two sides talk, in pieces of ``cut`` bytes."""
    ways = [(other, one.begin()), (one, other.begin())]
    while any(data for _, data in ways):
        answers = []
        for to, data in ways:
            answer = b"".join(to.receive(data[at : at + cut]) for at in range(0, len(data), cut))
            answers.append((one if to is other else other, answer))
        ways = answers


@pytest.mark.parametrize("cut", [1, 2, 7, 40, 1000])
def test_two_nodes_with_the_same_secret_know_each_other(cut: int) -> None:
    dialler, listener = side("a/1", True, incarnation=5), side("b/2", False, incarnation=6)
    play(dialler, listener, cut)

    assert (dialler.peer, listener.peer) == ("b/2", "a/1")
    assert dialler.their_claim == listener.my_claim == Claim(6, 7, 3)
    assert listener.their_claim == dialler.my_claim == Claim(5, 7, 3)


def test_the_listener_knows_what_the_dialler_has_proved_when_it_answers() -> None:
    seen: list[tuple[str, Claim | None]] = []

    def claim(peer: str, theirs: Claim | None) -> Claim:
        seen.append((peer, theirs))
        return Claim(2, 0, 0, Verdict.DUPLICATE)

    dialler = side("a/1", True)
    listener = Handshake("b/2", SECRET, b"b" * 32, False, claim)
    play(dialler, listener)

    assert seen == [("a/1", Claim(1, 7, 3))]
    assert dialler.their_claim == Claim(2, 0, 0, Verdict.DUPLICATE)


def test_bytes_behind_the_handshake_are_kept_for_the_link() -> None:
    dialler, listener = side("a/1", True), side("b/2", False)
    proof = dialler.receive(listener.receive(dialler.begin()))
    dialler.receive(listener.receive(proof + b"frames"))

    assert listener.rest == b"frames"


@pytest.mark.parametrize("stranger_dials", [True, False])
def test_a_stranger_without_the_secret_is_refused(stranger_dials: bool) -> None:
    stranger = side("a/1", stranger_dials, secret=b"another secret...")
    node = side("b/2", not stranger_dials)
    with pytest.raises(HandshakeError, match="does not know the secret"):
        play(stranger, node)

    assert node.their_claim is None or stranger_dials is False


def test_a_listener_proves_nothing_to_a_stranger() -> None:
    listener = side("b/2", False)
    hello = side("a/1", True, secret=b"another secret...")
    answer = listener.receive(hello.begin())
    with pytest.raises(HandshakeError):
        listener.receive(hello.receive(answer))

    assert listener.my_claim is None


def test_a_node_does_not_talk_to_one_of_its_own_name() -> None:
    for name in ("b/2", "b/3"):
        with pytest.raises(HandshakeError, match="has the name of this node"):
            side("b/2", False).receive(side(name, True).begin())


def test_a_proof_of_one_connection_is_of_no_use_for_another() -> None:
    dialler, listener = side("a/1", True), side("b/2", False)
    proof = dialler.receive(listener.receive(dialler.begin()))
    again = side("b/2", False, nonce=b"n" * 32)
    again.receive(dialler.begin())

    with pytest.raises(HandshakeError, match="does not know the secret"):
        again.receive(proof)


def test_a_proof_cannot_be_sent_back() -> None:
    dialler, listener = side("a/1", True), side("b/2", False)
    proof = dialler.receive(listener.receive(dialler.begin()))

    with pytest.raises(HandshakeError, match="does not know the secret"):
        dialler.receive(proof)


@given(st.data())
def test_a_changed_bit_is_refused(data: st.DataObject) -> None:
    dialler, listener = side("a/1", True), side("b/2", False)
    messages = [dialler.begin()]
    messages.append(listener.receive(messages[0]))
    at = data.draw(st.integers(0, 2))
    if at == 2:
        messages.append(dialler.receive(messages[1]))
    changed = bytearray(messages[at])
    bit = data.draw(st.integers(0, 8 * len(changed) - 1))
    changed[bit // 8] ^= 1 << bit % 8
    dialler, listener = side("a/1", True), side("b/2", False)
    try:
        answer = listener.receive(bytes(changed) if at == 0 else dialler.begin())
        answer = dialler.receive(bytes(changed) if at == 1 else answer)
        dialler.receive(listener.receive(bytes(changed) if at == 2 else answer))
    except HandshakeError:
        pass

    assert listener.their_claim is None
    assert dialler.their_claim is None


@given(st.lists(st.binary(max_size=400), max_size=20))
def test_garbage_is_refused_and_costs_little(pieces: list[bytes]) -> None:
    listener = side("b/2", False)
    kept = 0
    try:
        for piece in pieces:
            listener.receive(piece)
            kept = len(listener._came)
            assert kept < HANDSHAKE_BYTES_MAX
    except HandshakeError:
        return
    assert b"LVRTLNK\x01".startswith(b"".join(pieces)[:8])


@pytest.mark.parametrize("node", ["b", "b/", "/1", "b/x", "a/b/1", "a\n/1", "x" * 254 + "/1"])
def test_a_name_that_is_no_nodes_is_refused(node: str) -> None:
    with pytest.raises(HandshakeError):
        side(node, True)


def test_an_unknown_verdict_is_refused() -> None:
    dialler, listener = side("a/1", True), side("b/2", False)
    hello = listener.receive(dialler.begin())
    proof = bytearray(dialler.receive(hello))
    fields = b"\x09" + bytes(proof[1:-32])
    mac = hmac.digest(
        SECRET, b"leveret link, dialler\0" + dialler.begin() + hello + fields, "sha256"
    )

    with pytest.raises(HandshakeError, match="says 9"):
        listener.receive(fields + mac)
