"""The script ``rabbitmqctl``: calls as other people's scripts make them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from leveret.core.addresses import Address
from leveret.server.broker import Broker
from leveret.server.config.config import Config
from rigs.nodes import clean_environment, leveret_program

SCRIPT = Path(__file__).parents[2] / "examples" / "rabbitmqctl"

Run = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Run]:
    """A broker, and a function that calls the script for it."""
    environment = clean_environment(LEVERET=leveret_program(), LEVERET_DATA=str(tmp_path / "d"))

    async def call(*words: str) -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            str(SCRIPT),
            *words,
            cwd=tmp_path,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    async with Broker(Config(listen=(Address("127.0.0.1", 0),), data_dir=tmp_path / "d")):
        yield call


async def test_a_set_up_script_runs(run: Run) -> None:
    for line in (
        "-n rabbit@host --longnames await_startup --timeout 60",
        "add_user -q app s3cret",
        "add_vhost orders --node=rabbit@host",
        "set_permissions -p orders app .* .* .*",
        "set_user_tags app monitoring",
        'set_policy -p orders ttl ^q {"message-ttl":60000} --priority 1 --apply-to queues',
        'set_vhost_limits -p orders {"max-queues":9}',
        "delete_user guest",
    ):
        code, _, err = await run(*line.split(" "))
        assert (code, err) == (0, ""), line

    assert (await run("list_users", "-s"))[1] == "app\t[monitoring]\n"
    found = json.loads((await run("--formatter=json", "list_policies", "-p", "orders"))[1])
    assert (found[0]["name"], found[0]["priority"]) == ("ttl", 1)


async def test_checks_of_a_container_run(run: Run) -> None:
    assert (await run("-q", "ping"))[:2] == (0, "Ping succeeded\n")
    assert (await run("--quiet", "check_running", "-n", "rabbit@host"))[0] == 0
    assert (await run("check_port_connectivity"))[0] == 0
    assert (await run("check_port_listener", "1"))[0] == 69


async def test_words_that_look_like_options_stay_behind_two_dashes(run: Run) -> None:
    code, out, _ = await run("-n", "x", "add_vhost", "-q", "--", "-n")

    assert (code, out) == (0, "")
    assert "-n\n" in (await run("list_vhosts", "-s"))[1]


async def test_help_and_mistakes_end_as_those_of_leveret(run: Run) -> None:
    code, out, _ = await run("help")
    assert code == 0
    assert "list_consumers" in out
    assert (await run("list_nothing"))[0] == 64
    assert (await run("-n"))[0] == 64
