"""Faults to plant in firehoses, interceptors and auth back ends."""

from __future__ import annotations

from mutants.planted import Mutant

MUTANTS = {
    "copies are copied again": Mutant("Firehose.delivered", "messages = ...", "pass"),
    "the settlement of copies is told": Mutant(
        "Firehose.settled", "source.queue_name and (not source.has_copies)", "source.queue_name"
    ),
    "what waits to be copied has no bound": Mutant(
        "Firehose._take", "self._count + count > FIREHOSE_MESSAGES_MAX", "False"
    ),
    "bodies that wait to be copied have no bound": Mutant(
        "Firehose._take", "self._size_bytes + size_bytes > FIREHOSE_BYTES_MAX", "False"
    ),
    "copied messages still count": Mutant(
        "Firehose.next", "self._count -= 1\nself._size_bytes -= ...", "self._size_bytes -= ..."
    ),
    "sampling shifts the redelivered": Mutant("Firehose._sample", "batch.redelivered = ...", ""),
    "a commit copies its publishes again": Mutant(
        "Publisher.send",
        "(self._session.features.firehose is not None or publish_hooks) and (self.transaction is None or self.collector is not None)",
        "self._session.features.firehose is not None or publish_hooks",
    ),
    "a slow queue gets copies beyond its credit": Mutant(
        "OwnPublisher._spend", "credit.is_blocked", "False"
    ),
    "credit is never granted": Mutant("OwnPublisher._granted", "credit.grant(...)", ""),
    "what is left out is not counted": Mutant("OwnPublisher._spend", "self._left_out += 1", ""),
    "a new publisher is not woken": Mutant("OwnMessages.started", "self.wake()", ""),
    "intercepted messages are not examined": Mutant(
        "Interceptors._published", "mode | EXAMINE", "mode"
    ),
    "a changed body keeps its old size": Mutant("_sized", "head[4:_HEAD_BYTES] == size", "True"),
    "an interceptor may lose messages": Mutant(
        "interceptors._whole",
        "[each[0] for each in before] != [each[0] for each in after]",
        "False",
    ),
    "a failed back end grants": Mutant(
        "ExternalAccess._allowed",
        "self._failed.discard(key)\nreturn False",
        "self._failed.discard(key)\nreturn True",
    ),
    "a failure is kept": Mutant("ExternalAccess._allowed", "self._failed.discard(key)", ""),
    "answers are kept for ever": Mutant("ExternalAccess._forget", "self._answers.clear()", ""),
    "cached routes outlive the answers": Mutant("ExternalAccess._forget", "self.epoch += 1", ""),
    "a question is asked by each who needs it": Mutant(
        "ExternalAccess._allowed", "self._open.get(key)", "None"
    ),
    "any number of questions may be open": Mutant(
        "ExternalAccess._allowed", "len(...) >= QUESTIONS_MAX", "False"
    ),
    "a back end has any time": Mutant("ExternalAccess._asked", "self._timeout_s", "None"),
    "the method that has asked is lost": Mutant(
        "Channel._answered", "self.held.appendleft(run)", ""
    ),
    "a server-named queue asks for ever": Mutant(
        "queue_declare._declare",
        "yield from granted(partial(check, user, vhost.name, name, 'configure'))",
        "check(user, vhost.name, name, 'configure')",
    ),
    "the handshake goes on without the answer": Mutant(
        "Reader._handshake_run", "self._unanswered = run", ""
    ),
}
