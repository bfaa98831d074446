"""Instructions and messages between the replicas of a queue, as bytes (msgpack).

::

    [kind, epoch, ...]                      kind: int, as below; then by kind:
    1 publish    no first_seq is_handed_out is_persistent [expiry_ms, ...] | nil  [meta, ...] [body, ...]
    2 remove     no [run, ...]
    3 hand out   no below
    4 ask        request first
    5 state      request no first end [run, ...] is_last handed_out
    6 fetch      piece [run, ...]
    7 copies     piece below [[seq, is_persistent, expiry_ms], ...] [meta, ...] [body, ...]
    8 durable    no
    9 stale      nothing
    run          [first, end]               ascending, with a gap between one and the next
    meta         [count, origin, head, [blind key, ...]]   of so many messages in a row, that share both as objects
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec

from leveret.core.errors import LeveretError
from leveret.core.message import BODY, HEAD, ORIGIN, BlindOrigin, blind_keys_of
from leveret.mirroring.replicas import messages as forms
from leveret.mirroring.replicas.seq_runs import ALL_SEQS, SeqRuns
from leveret.mirroring.replicated import Batch, Replicated

if TYPE_CHECKING:
    from leveret.core.message import Message

_No: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_Seq: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=ALL_SEQS)]
_Runs: TypeAlias = tuple[tuple[_Seq, _Seq], ...]
_Meta: TypeAlias = tuple[Annotated[int, msgspec.Meta(gt=0)], bytes, bytes, list[bytes]]


class MirrorWireError(LeveretError):
    """Bytes of another replica cannot be read: they come from a defect or another version."""


class _Publish(msgspec.Struct, array_like=True, tag=1):
    epoch: _No
    no: _No
    first_seq: _Seq
    is_handed_out: bool
    is_persistent: bool
    expiries: list[_No] | None
    metas: list[_Meta]
    bodies: list[bytes]


class _Remove(msgspec.Struct, array_like=True, tag=2):
    epoch: _No
    no: _No
    seqs: _Runs


class _HandOut(msgspec.Struct, array_like=True, tag=3):
    epoch: _No
    no: _No
    below: _Seq


class _Ask(msgspec.Struct, array_like=True, tag=4):
    epoch: _No
    request: _No
    first: _Seq


class _State(msgspec.Struct, array_like=True, tag=5):
    epoch: _No
    request: _No
    no: _No
    first: _Seq
    end: _Seq
    live: _Runs
    is_last: bool
    handed_out: _Seq


class _Fetch(msgspec.Struct, array_like=True, tag=6):
    epoch: _No
    piece: _No
    seqs: _Runs


class _Copies(msgspec.Struct, array_like=True, tag=7):
    epoch: _No
    piece: _No
    below: _Seq
    rows: list[tuple[_Seq, bool, _No]]
    metas: list[_Meta]
    bodies: list[bytes]


class _Durable(msgspec.Struct, array_like=True, tag=8):
    epoch: _No
    no: _No


class _Stale(msgspec.Struct, array_like=True, tag=9):
    epoch: _No


_Form: TypeAlias = (
    _Publish | _Remove | _HandOut | _Ask | _State | _Fetch | _Copies | _Durable | _Stale
)
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Form)


def encode(message: forms.Instruction | forms.Direct) -> bytes:
    """Return an instruction or a message as bytes."""
    return _encoder.encode(_FORMS[type(message)](message))


def decode(data: bytes) -> forms.Instruction | forms.Direct:
    """Return the instruction or message that ``encode`` has written.

    Raises:
        MirrorWireError: the bytes are none.
    """
    try:
        form = _decoder.decode(data)
        message = _MESSAGES[type(form)](form)
    except (msgspec.MsgspecError, ValueError) as error:
        raise MirrorWireError(
            f"{len(data)} bytes of a replica of a queue cannot be read: {error}"
        ) from error
    return message


# To bytes.


def _metas(messages: Iterable[Message]) -> list[_Meta]:
    shared = groupby(messages, lambda each: (id(each[ORIGIN]), id(each[HEAD])))
    found: list[_Meta] = []
    for _, run in shared:
        first, *others = run
        origin = first[ORIGIN]
        keys = list(blind_keys_of(origin))
        found.append((1 + len(others), bytes(origin), first[HEAD], keys))
    return found


def _of_publish(each: forms.Publish) -> _Publish:
    batch: Batch = each.messages
    some = batch.messages
    return _Publish(
        each.epoch,
        each.no,
        each.first_seq,
        each.is_handed_out,
        batch.is_persistent,
        batch.expiries,
        _metas(some),
        [message[BODY] for message in some],
    )


def _of_copies(each: forms.Copies) -> _Copies:
    copies: Sequence[tuple[int, Replicated]] = each.messages
    some = [copy.message for _, copy in copies]
    rows = [(seq, copy.is_persistent, copy.expiry_ms) for seq, copy in copies]
    bodies = [message[BODY] for message in some]
    return _Copies(each.epoch, each.piece, each.below, rows, _metas(some), bodies)


_FORMS: Final[dict[type, Callable[[Any], _Form]]] = {
    forms.Publish: _of_publish,
    forms.Remove: lambda each: _Remove(each.epoch, each.no, each.seqs),
    forms.HandOut: lambda each: _HandOut(each.epoch, each.no, each.below),
    forms.Ask: lambda each: _Ask(each.epoch, each.request, each.first),
    forms.State: lambda each: _State(
        each.epoch,
        each.request,
        each.no,
        each.first,
        each.end,
        each.live,
        each.is_last,
        each.handed_out,
    ),
    forms.Fetch: lambda each: _Fetch(each.epoch, each.piece, each.seqs),
    forms.Copies: _of_copies,
    forms.Durable: lambda each: _Durable(each.epoch, each.no),
    forms.Stale: lambda each: _Stale(each.epoch),
}


# From bytes.


def _messages(metas: list[_Meta], bodies: list[bytes]) -> list[Message]:
    if sum([count for count, _, _, _ in metas]) != len(bodies):
        raise ValueError(f"{len(bodies)} bodies with metas of another number")
    left = iter(bodies)
    return [message for meta in metas for message in _with_meta(meta, left)]


def _with_meta(meta: _Meta, bodies: Iterator[bytes]) -> Iterator[Message]:
    count, origin, head, keys = meta
    if keys:
        origin = BlindOrigin(origin)
        origin.blind_keys = tuple(keys)
    for _ in range(count):
        yield origin, head, next(bodies)


def _runs(runs: SeqRuns) -> SeqRuns:
    at = -1
    for first, end in runs:
        if not at < first < end:
            raise ValueError(f"a run from {first} to {end} behind {at}")
        at = end
    return runs


def _to_publish(form: _Publish) -> forms.Publish:
    some = _messages(form.metas, form.bodies)
    if not some or len(some) != len(form.expiries or some):
        raise ValueError(f"{len(some)} messages with {len(form.expiries or ())} expiries")
    batch = Batch(some, form.is_persistent, form.expiries)
    return forms.Publish(form.epoch, form.no, form.first_seq, batch, form.is_handed_out)


def _to_copies(form: _Copies) -> forms.Copies:
    some = _messages(form.metas, form.bodies)
    if len(some) != len(form.rows):
        raise ValueError(f"{len(some)} messages with {len(form.rows)} rows")
    copies, at = [], -1
    for message, (seq, is_persistent, expiry_ms) in zip(some, form.rows, strict=True):
        if seq <= at:
            raise ValueError(f"seq {seq} behind {at}")
        copies.append((seq, Replicated(message, is_persistent, expiry_ms)))
        at = seq
    return forms.Copies(form.epoch, form.piece, form.below, tuple(copies))


_MESSAGES: Final[dict[type, Callable[[Any], forms.Instruction | forms.Direct]]] = {
    _Publish: _to_publish,
    _Remove: lambda form: forms.Remove(form.epoch, form.no, _runs(form.seqs)),
    _HandOut: lambda form: forms.HandOut(form.epoch, form.no, form.below),
    _Ask: lambda form: forms.Ask(form.request, form.epoch, form.first),
    _State: lambda form: forms.State(
        form.request,
        form.epoch,
        form.no,
        form.first,
        form.end,
        _runs(form.live),
        form.is_last,
        form.handed_out,
    ),
    _Fetch: lambda form: forms.Fetch(form.epoch, form.piece, _runs(form.seqs)),
    _Copies: _to_copies,
    _Durable: lambda form: forms.Durable(form.epoch, form.no),
    _Stale: lambda form: forms.Stale(form.epoch),
}
