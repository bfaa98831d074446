from __future__ import annotations

import pytest

from leveret.spark.errors import OptionError
from leveret.spark.publish.options import RETRY, parse

URI = {"uri": "amqp://localhost"}


def test_names_are_taken_in_any_case_and_values_are_converted() -> None:
    found = parse(
        URI
        | {"MAXRATE": "250.5", "publishers": "4", "onnack": "retry(3)", "mandatory": "FALSE"}
        | {"confirmtimeout": "2"}
    )

    assert (found.rate_per_s, found.publishers, found.confirm_timeout_s) == (250.5, 4, 2.0)
    assert (found.on_nack, found.retries, found.mandatory) == (RETRY, 3, False)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"routingkee": "a"}, 'unknown write option "routingkee"'),
        ({"window": "0"}, "window"),
        ({"window": "many"}, "window"),
        ({"maxRate": "nan", "publishers": "1"}, "maxRate"),
        ({"maxRate": "10"}, "give publishers"),
        ({"mandatory": "yes"}, "true, false"),
        ({"mandatory": "false", "onUnroutable": "drop"}, "no effect with mandatory=false"),
        ({"onUnroutable": "ignore"}, "fail, deadletter, drop"),
        ({"onUnroutable": "deadletter"}, "needs deadLetterExchange"),
        ({"deadLetterExchange": "dlx"}, "deadLetterExchange has no effect"),
        ({"onNack": "retry(0)"}, "retry(n)"),
        ({"onNack": "retry(101)"}, "retry(n)"),
        ({"onNack": "drop"}, "retry(n)"),
        ({"dedup": "both"}, "none, message_id, producer"),
        ({"dedup": "producer", "producerId": "p", "onNack": "retry(2)"}, "refuses what follows"),
        (
            {
                "dedup": "producer",
                "producerId": "p",
                "onNack": "deadletter",
                "deadLetterExchange": "d",
            },
            "leave onNack=fail",
        ),
        ({"producerId": "p"}, "no effect without dedup=producer"),
        ({"producerEpoch": "0"}, "no effect without dedup=producer"),
        ({"dedup": "producer", "producerId": "p" * 129}, "129 bytes"),
        ({"ledgerStep": "5"}, "no effect without ledger"),
        ({"plan": "x"}, "no effect without ledger"),
        ({"exchange": "ä" * 128}, "256 bytes"),
        ({"tls.key": "k"}, "no effect without tls.cert"),
        ({"tls.verify": "false", "tls.ca": "x"}, "no effect with tls.verify=false"),
        ({"uriEnv": "X"}, "exactly one"),
    ],
)
def test_options_that_are_wrong_or_without_effect_are_refused(
    options: dict[str, str], text: str
) -> None:
    with pytest.raises(OptionError, match=text.replace("(", r"\(").replace(")", r"\)")):
        parse(URI | options)


def test_options_that_decide_what_is_sent_change_the_fingerprint() -> None:
    base = URI | {"ledger": "/x"}
    changes = [{}, {"plan": "p"}, {"exchange": "e"}, {"routingKey": "k"}, {"onUnroutable": "drop"}]

    found = {parse(base | change).fingerprint("target") for change in changes}

    assert len(found) == len(changes)
    assert (
        parse(base | {"window": "5"}).fingerprint("target") in found
    )  # a window is not part of it
    assert parse(base).fingerprint("another") not in found
