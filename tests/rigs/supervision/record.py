"""Records ``data/otp_traces_generated.json`` from the Erlang and the RabbitMQ that are installed here.

PYTHONPATH=tests python -P tests/rigs/supervision/record.py
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from rigs.supervision import oracle
from rigs.supervision.generated import generated
from rigs.supervision.scenario_files import GENERATED

FIRST_SEED = 2_026_000
SCENARIOS = 200


def main() -> None:
    scenarios = [generated(FIRST_SEED + n) for n in range(SCENARIOS)]
    with tempfile.TemporaryDirectory() as folder:
        real = oracle.traces(scenarios, Path(folder))
    rows = [{**one, "trace": trace} for one, trace in zip(scenarios, real, strict=True)]
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    GENERATED.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
