"""Faults to plant in firehoses, interceptors and outside back ends."""

from __future__ import annotations

from mutants.planted import Mutant

_TRACE, _PUBLISHER = "vhost/trace.py", "node/own_publisher.py"
_AUTH_BACKENDS, _INTERCEPTORS = "vhost/auth_backends.py", "channel/interceptors.py"

MUTANTS = {
    "copies are copied again": Mutant(
        _TRACE,
        "            messages = [each for each in messages if not is_copy(each)]\n",
        "            pass\n",
    ),
    "the settlement of copies is told": Mutant(
        _TRACE, "if source.queue_name and not source.has_copies:", "if source.queue_name:"
    ),
    "what waits to be copied has no bound": Mutant(
        _TRACE, "self._count + count > FIREHOSE_MESSAGES_MAX", "False"
    ),
    "bodies that wait to be copied have no bound": Mutant(
        _TRACE, "self._size_bytes + size_bytes > FIREHOSE_BYTES_MAX", "False"
    ),
    "copied messages still count": Mutant(
        _TRACE, "        self._count -= 1\n        self._size", "        self._size"
    ),
    "sampling shifts the redelivered": Mutant(
        _TRACE,
        "        batch.redelivered = sum([at < batch.redelivered for at in chosen])\n",
        "",
    ),
    "a commit copies its publishes again": Mutant(
        "channel/publishing/publish.py",
        "(self._session.features.firehose is not None or taps) and (\n"
        "            self.transaction is None or self.collector is not None\n"
        "        ):",
        "self._session.features.firehose is not None or taps:",
    ),
    "a slow queue gets copies beyond its credit": Mutant(
        _PUBLISHER, "        if credit.is_blocked:", "        if False:"
    ),
    "credit is never granted": Mutant(
        _PUBLISHER, "        credit.grant(mail.messages, mail.size_bytes)\n", ""
    ),
    "what is left out is not counted": Mutant(_PUBLISHER, "            self._left_out += 1\n", ""),
    "a new publisher is not woken": Mutant(
        "node/own_messages.py",
        "        self._is_awake = False\n        self.wake()\n",
        "        self._is_awake = False\n",
    ),
    "intercepted messages are not examined": Mutant(_INTERCEPTORS, "mode | EXAMINE", "mode"),
    "a changed body keeps its old size": Mutant(
        _INTERCEPTORS, "    if head[4:_HEAD_BYTES] == size:", "    if True:"
    ),
    "an interceptor may lose messages": Mutant(
        _INTERCEPTORS,
        "    if [each[0] for each in before] != [each[0] for each in after]:",
        "    if False:",
    ),
    "a failed back end grants": Mutant(
        _AUTH_BACKENDS,
        "            self._failed.discard(key)\n            return False",
        "            self._failed.discard(key)\n            return True",
    ),
    "a failure is kept": Mutant(_AUTH_BACKENDS, "            self._failed.discard(key)\n", ""),
    "answers are kept for ever": Mutant(
        _AUTH_BACKENDS,
        "        self._answers.clear()\n        self._failed",
        "        self._failed",
    ),
    "cached routes outlive the answers": Mutant(
        _AUTH_BACKENDS,
        "        self._failed.clear()\n        self.epoch += 1\n",
        "        self._failed.clear()\n",
    ),
    "a question is asked by each who needs it": Mutant(
        _AUTH_BACKENDS, "        question = self._open.get(key)\n", "        question = None\n"
    ),
    "any number of questions may be open": Mutant(
        _AUTH_BACKENDS, "if len(self._open) >= QUESTIONS_MAX:", "if False:"
    ),
    "a back end has any time": Mutant(
        _AUTH_BACKENDS,
        "            async with asyncio.timeout(self._timeout_s):\n                tags",
        "            async with asyncio.timeout(None):\n                tags",
    ),
    "the method that has asked is lost": Mutant(
        "channel/traffic.py", "            self.held.appendleft(run)\n", ""
    ),
    "a server-named queue asks for ever": Mutant(
        "vhost/queue_declare.py",
        'yield from granted(partial(check, user, vhost.name, name, "configure"))',
        'check(user, vhost.name, name, "configure")',
    ),
    "the handshake goes on without the answer": Mutant(
        "connection/reader.py", "            self._unanswered = run\n", ""
    ),
}
