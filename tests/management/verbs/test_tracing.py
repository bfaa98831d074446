"""trace_on and trace_off, as the control socket has them."""

from __future__ import annotations

import pytest

from leveret.management.errors import RefusedError
from leveret.management.node_admin import NodeAdmin
from leveret.server import Broker


async def tracing(admin: NodeAdmin) -> list[object]:
    return [row["tracing"] for row in await admin.vhosts.list_vhosts()]


async def test_it_is_listed(admin: NodeAdmin, broker: Broker) -> None:
    assert await tracing(admin) == [False]

    await admin.tracing.trace_on("/")
    await admin.tracing.trace_on("/", 0.5)

    assert await tracing(admin) == [True]
    firehose = broker.node.vhosts["/"].features.firehose
    assert firehose is not None
    assert firehose.rate == 0.5
    assert broker.node.own_messages.sources == [firehose]
    await admin.tracing.trace_off("/")
    await admin.tracing.trace_off("/")
    assert await tracing(admin) == [False]
    assert broker.node.own_messages.sources == []


async def test_a_deleted_vhost_takes_it_along(admin: NodeAdmin, broker: Broker) -> None:
    await admin.vhosts.add_vhost("v")
    await admin.tracing.trace_on("v")

    await admin.vhosts.delete_vhost("v")

    assert broker.node.own_messages.sources == []


@pytest.mark.parametrize("rate", [0.0, -1.0, 1.1, float("nan")])
async def test_wrong_rates_are_refused(admin: NodeAdmin, rate: float) -> None:
    with pytest.raises(RefusedError, match="allowed: above 0, at most 1"):
        await admin.tracing.trace_on("/", rate)


async def test_a_vhost_that_does_not_exist_is_refused(admin: NodeAdmin) -> None:
    with pytest.raises(RefusedError, match="Virtual host 'gone' does not exist"):
        await admin.tracing.trace_on("gone")
    with pytest.raises(RefusedError, match="Virtual host 'gone' does not exist"):
        await admin.tracing.trace_off("gone")
