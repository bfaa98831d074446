"""The operator server: carries out verbs for the operators of other nodes of the cluster.

Connections, channels and the statistics of queues are known to their node only, so a command asks the other nodes over
the links: one call for a verb, answered in JSON as the control socket answers (``verb_table``). Rows come in parts,
each asked for by a call of its own; so a long list takes little memory on both nodes, and comes no faster than the
operator reads. A list that is not read to its end is forgotten after ``IDLE_S``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final

from leveret.actors.gen_server import NOREPLY, From, GenServer
from leveret.actors.links.sendable import message
from leveret.management import json_text
from leveret.management.audit_log import OPERATOR
from leveret.management.errors import RefusedError
from leveret.management.verb_table import Verb, VerbTable, failure

OPERATORS: Final = "operators"
_SENT_AS: Final = "leveret.server.admin.operator_server"
ROWS_AT_ONCE: Final = 100
LISTS_MAX: Final = 32
IDLE_S: Final = 60.0


@message(sent_as=f"{_SENT_AS}:AskVerb")
@dataclass(slots=True)
class AskVerb:
    """A call: carry out a verb; answered with an ``Answered``.

    Attributes:
        arguments: JSON, an object.
        operator: who asks, for the audit log.
    """

    verb: str
    arguments: bytes
    operator: str


@message(sent_as=f"{_SENT_AS}:NextRows")
@dataclass(slots=True)
class NextRows:
    """A call: send the next rows of a list; answered with an ``Answered``."""

    number: int


@message(sent_as=f"{_SENT_AS}:Answered")
@dataclass(slots=True)
class Answered:
    """What a verb has answered.

    Attributes:
        answer: JSON, as in ``verb_table``; ``ok`` of a list is a part of its rows.
        more: the number of the rest of the list, 0: there is none.
    """

    answer: bytes
    more: int = 0


@dataclass(slots=True)
class _List:
    verb: str
    rows: AsyncIterator[Any]


@dataclass(slots=True)
class _Idle:
    """Timer: nobody has asked for the rest of a list."""

    number: int


class OperatorServer(GenServer):
    """Answers the operators of other nodes; verbs run beside each other."""

    def init(self, verbs: Mapping[str, Verb]) -> None:
        """Begin; ``verbs`` are about this node alone."""
        self._verbs = VerbTable(verbs)
        self._lists: dict[int, _List] = {}
        self._last = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.runtime.register(OPERATORS, self.ref)

    def handle_call(self, request: Any, frm: From | None) -> Any:
        if frm is None:
            return super().handle_call(request, frm)
        if type(request) is AskVerb:
            self._begin(self._answer(request, frm))
        elif type(request) is NextRows:
            self._begin(self._next_rows(request.number, frm))
        else:
            return super().handle_call(request, frm)
        return NOREPLY

    def handle_info(self, message: Any) -> None:
        if type(message) is _Idle:
            self._lists.pop(message.number, None)

    def terminate(self, reason: object) -> None:
        for task in self._tasks:
            task.cancel()

    def _begin(self, steps: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(steps)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, request: AskVerb, frm: From) -> None:
        OPERATOR.set(request.operator)
        answer = await self._verbs.answer(request.verb, json_text.decode(request.arguments))
        found = answer.get("ok")
        if not isinstance(found, AsyncIterator):
            self.runtime.reply(frm, Answered(json_text.encode(answer)))
        elif len(self._lists) >= LISTS_MAX:
            busy = RefusedError(f"{LISTS_MAX} lists are being read from this node; try again")
            self._reply(frm, failure(request.verb, busy))
        else:
            await self._send_part(_List(request.verb, found), frm)

    async def _next_rows(self, number: int, frm: From) -> None:
        rest = self._lists.pop(number, None)
        if rest is None:
            self._reply(frm, failure(None, RefusedError("the list was not read for too long")))
        else:
            await self._send_part(rest, frm)

    async def _send_part(self, rest: _List, frm: From) -> None:
        rows: list[Any] = []
        try:
            async for row in rest.rows:
                rows.append(row)
                if len(rows) >= ROWS_AT_ONCE:
                    break
        except Exception as error:  # noqa: BLE001 - it becomes the answer
            self._reply(frm, failure(rest.verb, error))
            return
        more = 0
        if len(rows) >= ROWS_AT_ONCE:
            self._last = more = self._last + 1
            self._lists[more] = rest
            self.start_timer(IDLE_S, _Idle(more))
        self._reply(frm, {"ok": rows}, more)

    def _reply(self, frm: From, answer: dict[str, Any], more: int = 0) -> None:
        self.runtime.reply(frm, Answered(json_text.encode(answer), more))
