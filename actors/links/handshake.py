"""The handshake of a link: two nodes prove to each other that they know the secret, before anything else is read.

::

    dialler                                         listener
    HELLO  ------------------------------------------>
           <------------------------------------------ HELLO
    PROOF  ------------------------------------------>            checked before the listener proves anything
           <------------------------------------------ PROOF

    HELLO  magic:8  size:u8  node:size bytes of UTF-8  nonce:32
    PROOF  verdict:u8  incarnation:u32  parted_at:u64  lost:u32  mac:32

``mac`` is HMAC-SHA256, keyed with the secret, over the side (dialler or listener), both HELLOs and the fields before
it. So a proof is of no use for another pair of nodes, for the other side, for another connection or with other fields,
and a node that gets its own HELLO back refuses it. ``node`` is the name and creation of a node, ``name/creation``.

A stranger can make a node read 345 bytes at most, all of fixed places and lengths, and learns its name and that it is
Leveret's. It has not got a proof from a node that it dials; from a node that dials it, it gets one, with which guesses
of the secret can be checked: a secret must not be guessable. The handshake hides and protects nothing that comes after
it: on a network that others can change use TLS (``security``).

Turned down: passwords in clear (a listener would collect them); a proof of the dialler only (it would send its mail to
a listener that has proved nothing); MD5, which Erlang uses.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from leveret.actors.links.limits import NODE_BYTES_MAX
from leveret.core.errors import ActorError

NONCE_BYTES: Final = 32
_MAGIC: Final = b"LVRTLNK\x01"
_HEAD: Final = struct.Struct(">8sB")
_FIELDS: Final = struct.Struct(">BIQI")
_MAC_BYTES: Final = 32
_PROOF_BYTES: Final = _FIELDS.size + _MAC_BYTES
HANDSHAKE_BYTES_MAX: Final = _HEAD.size + NODE_BYTES_MAX + NONCE_BYTES + _PROOF_BYTES
_DIALLER: Final = b"leveret link, dialler\0"
_LISTENER: Final = b"leveret link, listener\0"


class HandshakeError(ActorError):
    """The other side is not a node of this cluster, or the link is refused."""


class Verdict(IntEnum):
    """Whether a side uses the connection for the link."""

    WELCOME = 0
    DUPLICATE = 1  # the other connection, which is being made at the same time, is used


@dataclass(frozen=True, slots=True)
class Claim:
    """What a side says of itself when it proves who it is.

    Attributes:
        incarnation: number of the connection, counted by the node; it is in every frame that the side sends.
        parted_at: number of the last actor that the side had started when it last lost the other node; 0: it never did.
        lost: the other side's incarnation in the last link that this side has lost; 0: none.
        verdict: whether the link is to be used.
    """

    incarnation: int
    parted_at: int
    lost: int = 0
    verdict: Verdict = Verdict.WELCOME


def check_node(node: str) -> bytes:
    """Return ``name/creation`` of a node as UTF-8.

    Raises:
        HandshakeError: the text does not have this form, or is too long.
    """
    name, slash, creation = node.rpartition("/")
    encoded = node.encode(errors="replace")
    if not (slash and name and creation.isdigit() and name.isprintable() and "/" not in name):
        raise HandshakeError(
            f"{node!r:.80} is no node: it must be a printable name, a slash and a number"
        )
    if len(encoded) > NODE_BYTES_MAX:
        raise HandshakeError(
            f"node of {len(encoded)} bytes, limit {NODE_BYTES_MAX}: shorten its name"
        )
    return encoded


class Handshake:
    """One side of the handshake: bytes in, bytes out.

    Args:
        node: this one, ``name/creation``.
        secret: of the cluster; empty where TLS tells who the other side is.
        nonce: ``NONCE_BYTES`` that were never used before.
        is_dialler: this side has made the connection.
        claim: returns this side's claim. It is called with the other side's name and its proved claim, which the
            listener knows by then and the dialler does not (None).
        accepts: called with the other side's name before anything is proved; raises HandshakeError to refuse it.

    Attributes:
        peer: the other side, ``name/creation``; empty until its HELLO has come.
        their_claim: the other side's claim; None before its proof has been checked.
        my_claim: the claim that this side has sent; None before that.
        rest: bytes of the link that came with the end of the handshake.
    """

    def __init__(
        self,
        node: str,
        secret: bytes,
        nonce: bytes,
        is_dialler: bool,
        claim: Callable[[str, Claim | None], Claim],
        accepts: Callable[[str], None] = lambda _: None,
    ) -> None:
        encoded = check_node(node)
        self._secret = secret
        self._is_dialler = is_dialler
        self._claim = claim
        self._accepts = accepts
        self._my_hello = _HEAD.pack(_MAGIC, len(encoded)) + encoded + nonce
        self._node = node
        self._their_hello = b""
        self._came = b""
        self.peer = ""
        self.my_claim: Claim | None = None
        self.their_claim: Claim | None = None
        self.rest = b""

    def begin(self) -> bytes:
        """Return the first bytes to send."""
        return self._my_hello if self._is_dialler else b""

    def receive(self, data: bytes) -> bytes:
        """Take bytes of the other side, and return the bytes to send back.

        Raises:
            HandshakeError: the other side is not a node of this cluster; close the socket without sending more.
        """
        self._came += data
        answer = b""
        if not self._their_hello and self._read_hello():
            answer = self._prove() if self._is_dialler else self._my_hello
        if self._their_hello and self.their_claim is None and len(self._came) >= _PROOF_BYTES:
            self._read_proof()
            if not self._is_dialler:
                answer += self._prove()
        return answer

    def _read_hello(self) -> bool:
        came = self._came
        if came[: len(_MAGIC)] != _MAGIC[: len(came)]:
            raise HandshakeError(
                f"the other side is no node of Leveret's: it begins with {came[:8]!r}"
            )
        if len(came) < _HEAD.size:
            return False
        end = _HEAD.size + came[len(_MAGIC)] + NONCE_BYTES
        if len(came) < end:
            return False
        self._their_hello, self._came = came[:end], came[end:]
        try:
            peer = self._their_hello[_HEAD.size : -NONCE_BYTES].decode()
        except UnicodeDecodeError:
            raise HandshakeError("the other side's name is no UTF-8") from None
        check_node(peer)
        if peer.rpartition("/")[0] == self._node.rpartition("/")[0]:
            raise HandshakeError(f"{peer} has the name of this node: names of nodes must differ")
        self._accepts(peer)
        self.peer = peer
        return True

    def _read_proof(self) -> None:
        proof, self.rest, self._came = self._came[:_PROOF_BYTES], self._came[_PROOF_BYTES:], b""
        fields, mac = proof[: _FIELDS.size], proof[_FIELDS.size :]
        if not hmac.compare_digest(mac, self._mac(fields, not self._is_dialler)):
            raise HandshakeError(f"{self.peer} does not know the secret of this node")
        verdict, incarnation, parted_at, lost = _FIELDS.unpack(fields)
        try:
            self.their_claim = Claim(incarnation, parted_at, lost, Verdict(verdict))
        except ValueError:
            raise HandshakeError(f"{self.peer} says {verdict}: its version differs") from None

    def _prove(self) -> bytes:
        self.my_claim = claim = self._claim(self.peer, self.their_claim)
        fields = _FIELDS.pack(claim.verdict, claim.incarnation, claim.parted_at, claim.lost)
        return fields + self._mac(fields, self._is_dialler)

    def _mac(self, fields: bytes, is_dialler: bool) -> bytes:
        hellos = (self._my_hello, self._their_hello)
        first, second = hellos if self._is_dialler else hellos[::-1]
        side = _DIALLER if is_dialler else _LISTENER
        return hmac.digest(self._secret, side + first + second + fields, "sha256")
