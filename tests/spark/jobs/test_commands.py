"""The jobs as commands of a process: reports, exit codes, and what a command refuses.

Tests: server/cli/jobs.py, spark/jobs/arguments.py, spark/jobs/command.py,
    spark/jobs/engine_choice.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from leveret.server.cli.jobs import ABOUT, OWN
from leveret.server.cli.main import main
from leveret.spark.jobs.command import MODULES, command_of
from leveret.testing.vhost import FreshVhost
from rigs.nodes import leveret_program
from rigs.programs import ended, run
from rigs.spark.jobs import dead_letters, declare, stored_snapshot


def leveret(folder: Path, *words: str, **environment: str) -> CompletedProcess[str]:
    return ended([leveret_program(), *words], folder, **environment)


def test_every_command_has_a_module_and_tells_its_arguments(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ABOUT.keys() == MODULES.keys() | OWN.keys()
    assert all(command_of(name).run for name in MODULES)
    for name, about in ABOUT.items():
        with pytest.raises(SystemExit) as ending:
            main([name, "--help"])
        assert ending.value.code == 0
        text = capsys.readouterr().out
        assert about in text
        assert "--json" in text


def test_the_help_lists_the_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])

    text = capsys.readouterr().out
    assert all(name in text for name in ABOUT)


def test_a_replay_reports_in_json_on_stdout_and_in_a_file(
    amqp_broker: FreshVhost, tmp_path: Path
) -> None:
    declare(amqp_broker, "q")
    path = stored_snapshot(tmp_path / "data", 20)
    file = tmp_path / "report.json"
    words = ["replay", str(path), "--queue", "east", "--exchange", "", "--routing-key-to", "q"]
    words += ["--target-env", "BROKER", "--ledger", "ledger", "--json", "--report", str(file)]

    first = leveret(tmp_path, *words, BROKER=amqp_broker.url)
    again = leveret(tmp_path, *words, BROKER=amqp_broker.url)

    assert (first.returncode, first.stderr) == (0, "")
    assert json.loads(first.stdout)["counts"]["sent"] == 10
    assert json.loads(again.stdout)["counts"]["sent"] == 0
    assert json.loads(file.read_text()) == json.loads(again.stdout)
    assert amqp_broker.queue("q").depth == 10


def test_a_dry_run_needs_no_target_and_prints_lines(tmp_path: Path) -> None:
    path = stored_snapshot(tmp_path / "data", 20)

    done = leveret(tmp_path, "replay", str(path), "--dry-run", "--rate", "5")

    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "replay (local, dry run)"
    assert "  duration_s: 4" in lines
    assert "  exchange=orders routing_key=key.0 messages=4 body_bytes=6" in lines


def test_letters_that_were_left_out_make_the_exit_code_1(
    amqp_broker: FreshVhost, tmp_path: Path
) -> None:
    declare(amqp_broker, orders=["q"])
    path = dead_letters(tmp_path / "data")
    words = ["replay", str(path), "--queue", "dead", "--to-original", "--target-env", "BROKER"]

    done = leveret(tmp_path, *words, BROKER=amqp_broker.url)

    assert done.returncode == 1
    assert done.stdout.startswith("warning: 1 messages have no x-death")
    assert amqp_broker.queue("q").depth == 3


REFUSED = [
    (["nowhere", "--dry-run"], 78, "nowhere does not exist"),
    (["PATH"], 78, "no target is given: use --target"),
    (["PATH", "--target", "amqp://u:hunter2@h"], 78, "use --target-file or --target-env"),
    (["PATH", "--target", "amqp://127.0.0.1:1"], 70, "cannot connect"),
    (["PATH", "--dry-run", "--engine", "local", "--where", "true"], 78, "are Spark's"),
    (["PATH", "--dry-run", "--state", "acked"], 78, "--state has no effect"),
    (["PATH", "--dry-run", "--set-header", "x"], 78, "not NAME=VALUE"),
    (["PATH", "--dry-run", "--from", "soon"], 78, "startingTimestamp"),
    (["PATH", "--target", "amqp://h", "--rate", "0"], 78, "maxRate"),
    (["PATH", "--target", "amqp://h", "--option", "colour=red"], 78, "unknown write option"),
    (["PATH", "--dry-run", "--report", "no/where"], 74, "no/where"),
    (["PATH", "--publishers", "0"], 64, "not a number from 1 to 1000"),
    ([], 64, "SNAPSHOT"),
]


def test_a_refusal_is_one_line_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = str(stored_snapshot(tmp_path / "data", 2))
    for words, code, text in REFUSED:
        try:
            found = main(["replay", *(path if word == "PATH" else word for word in words)])
        except SystemExit as ending:
            found = ending.code
        said = capsys.readouterr()
        assert (found, said.out) == (code, ""), (words, said)
        assert text in said.err
        assert said.err.count("\n") == 1
        assert "hunter2" not in said.err


def test_a_library_that_is_missing_is_named_with_its_extra(tmp_path: Path) -> None:
    script = tmp_path / "without.py"
    script.write_text(
        "import sys\n"
        "sys.modules['pyarrow'] = None\n"
        "from leveret.server.cli.main import main\n"
        "sys.exit(main(['replay', 'x', '--dry-run']))\n"
    )

    done = ended([sys.executable, str(script)], tmp_path)

    assert done.returncode == 78
    assert done.stderr == "leveret: pyarrow is missing: pip install 'leveret[spark]'\n"


def test_the_local_engine_loads_no_spark_and_other_commands_load_no_jobs(tmp_path: Path) -> None:
    path = stored_snapshot(tmp_path / "data", 2)
    code = (
        "import sys\n"
        "from leveret.server.cli.main import main\n"
        "main(sys.argv[2:])\n"
        "print(*sorted(name for name in sys.modules if name.startswith(sys.argv[1])))\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)

    replayed = run(
        [sys.executable, str(script), "pyspark", "replay", str(path), "--dry-run"], tmp_path
    )
    listed = run([sys.executable, str(script), "leveret.spark", "snapshot", "list"], tmp_path)

    assert replayed.splitlines()[-1] == ""
    assert listed.splitlines()[-1] == ""
