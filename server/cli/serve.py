"""``leveret serve``: a broker as a process of its own.

Only this command sets up logging, signals and the interpreter's settings; an embedding service does so itself.
SIGTERM and SIGINT stop the broker, also while it starts; a second signal ends the process at once. SIGHUP: see
``reload``.

One line on standard output says that every vhost serves, and that the other nodes of a cluster are linked (``ready``).
Where some are down, a line before it names each of them and why (``degraded``), and ``ready`` follows when all serve.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

import leveret
from leveret.amqp.kernel import KERNEL_NAME
from leveret.broker.node.log_exchange import LogExchange
from leveret.core.compiled_path import form_of_path, why_sources
from leveret.core.errors import ConfigError, StoreError
from leveret.core.event_loop import loop_factory, name_of
from leveret.core.log import output as log_output
from leveret.core.log.loggers import logger
from leveret.core.printable import value
from leveret.core.system import descriptors, heap, huge_pages
from leveret.core.system.machine import Machine
from leveret.core.system.shortage import SHORTAGES, THREADS, reason_no
from leveret.server.broker import Broker, BrokerFailedError
from leveret.server.cli.reload import Reload
from leveret.server.cli.spare_memory import SpareMemory
from leveret.server.cli.young_objects import collect_young
from leveret.server.config import files as conf_file
from leveret.server.config.config import Config
from leveret.server.output.terminal import OutputClosedError, show
from leveret.server.process import AddressUnavailableError, OwnProcess, PortInUseError

log = logger(__name__)

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

# The event loop stops for a garbage collection: 8,000 objects, as many as the middle generation may have, take up to
# 15 ms on a machine with slow memory. Nearly all of them are tuples, which a collection untracks for good. A full
# collection takes a second with 100,000 queues, so none comes by itself: the broker makes no cycles of objects that
# live long (docs/decisions/0025-no-full-collections.md).
GC_THRESHOLDS: Final = (2_000, 2, 2**31 - 1)
SWITCH_INTERVAL_S: Final = 0.0005  # a waiting store thread gets the GIL soon
KEPT_BYTES: Final = 31 * 1024 * 1024


def run(path: Path | None, given: dict[str, Any]) -> int:
    """Run a broker until a signal stops it.

    Returns:
        0 after a clean stop, 69 when a port is in use, 70 when the broker failed, 71 when the system has no thread,
        descriptor or memory left for the start, 78 when the data directory or the definitions file cannot be used.

    Raises:
        ConfigError: the configuration or LEVERET_LOOP is invalid.
    """
    try:
        return _run(path, given)
    except OSError as error:
        remedy = (SHORTAGES | THREADS).get(reason_no(error))
        if remedy is None:
            raise
        return _fail(os.EX_OSERR, f"{error.strerror}; {remedy}")


def _run(path: Path | None, given: dict[str, Any]) -> int:
    heap.share_arena()  # the log has the first thread
    huge_pages.use_huge_pages()
    early = log_output.configure("warning")  # for warnings about the configuration itself
    try:
        config = conf_file.load(path, given)
    finally:
        log_output.release(early)
    try:
        handlers = log_output.configure(config.log_level, config.log_file, config.log_file_level)
    except OSError as error:
        if error.errno in THREADS:
            raise
        raise ConfigError(f"cannot write {config.log_file}: {error.strerror}") from error
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_serve(config, path, given, handlers))
    except StoreError as error:
        return _fail(os.EX_CONFIG, error)
    except PortInUseError as error:
        return _fail(os.EX_UNAVAILABLE, f"{error}; choose another with --listen HOST:PORT")
    except AddressUnavailableError as error:
        return _fail(os.EX_UNAVAILABLE, error)
    except BrokerFailedError as error:
        return _fail(os.EX_SOFTWARE, error)
    finally:
        log_output.release(handlers)
    return 0


async def _serve(
    config: Config, path: Path | None, given: dict[str, Any], handlers: list[logging.Handler]
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, _stop, stop, loop, number)
    _tune_interpreter()
    descriptors_limit = descriptors.raise_limit()
    broker = Broker(config)
    try:
        if await _is_started(broker, stop):
            log.info("file descriptors limit=%d", descriptors_limit)
            if reason := why_sources():
                log.warning(
                    "message path not compiled, messages cost twice the CPU reason=%s", reason
                )
            await _run_until(stop, broker, path, given, handlers)
        log.info("stopping")
    finally:
        await broker.stop()
    log.info("stopped")


async def _is_started(broker: Broker, stop: asyncio.Event) -> bool:
    """Start the broker; return False if a signal has ended the start."""
    starting, stopping = (asyncio.ensure_future(each) for each in (broker.start(), stop.wait()))
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    starting.cancel()  # unless it is done
    try:
        await starting
    except asyncio.CancelledError:
        return False
    return True


async def _run_until(
    stop: asyncio.Event,
    broker: Broker,
    path: Path | None,
    given: dict[str, Any],
    handlers: list[logging.Handler],
) -> None:
    """Run the broker, which has been started, until a signal."""
    config, loop = broker.config, asyncio.get_running_loop()
    exchange = _publish_log(broker, loop) if config.log_exchange else None
    reload = Reload(broker, path, given, handlers, exchange)
    loop.add_signal_handler(signal.SIGHUP, reload)
    broker.process = OwnProcess(stop.set, reload.set_log_level)
    gc.freeze()
    background = [
        loop.create_task(_tell_ready(broker, config)),
        loop.create_task(SpareMemory(Machine()).run()),
        loop.create_task(collect_young()),
    ]
    try:
        await _stopped_or_ended(stop, broker)
    finally:
        for task in background:
            task.cancel()
        if exchange is not None:
            log_output.remove([exchange])


def _publish_log(broker: Broker, loop: asyncio.AbstractEventLoop) -> LogExchange:
    """Begin to publish the log to ``amq.rabbitmq.log``."""
    config, own = broker.config, broker.node.own_messages
    name = config.cluster_node or str(broker.node.settings.cluster_name)
    exchange = LogExchange(config.default_vhost, name, loop, own.wake)
    exchange.setLevel(log_output.level_number(config.log_exchange_level or config.log_level))
    own.add(exchange)
    log_output.add([exchange])
    return exchange


async def _tell_ready(broker: Broker, config: Config) -> None:
    """Say when every vhost serves, and before that which do not."""
    address, version = broker.addresses[0].url, leveret.__version__
    for vhost, reason in broker.degraded.items():
        _say(f"leveret {version} degraded: {address} vhost={value(vhost)} reason={value(reason)}")
    await broker.wait_serving()
    loop = name_of(asyncio.get_running_loop())
    line = f"leveret {version} ready: {address} data={config.data_dir} kernel={KERNEL_NAME}"
    line += f" loop={loop} path={form_of_path()}"
    if config.cluster:
        line += f" cluster={config.cluster} node={config.cluster_node}"
    _say(line)


def _say(line: str) -> None:
    try:
        show(line, flush=True)
    except (
        OutputClosedError,
        OSError,
    ) as error:  # nobody listens any more, or a file on a full disk
        log.warning("standard output cannot be written line=%s error=%s", line, error)


async def _stopped_or_ended(stop: asyncio.Event, broker: Broker) -> None:
    """Wait for a signal.

    Raises:
        BrokerFailedError: the supervision tree has ended by itself.
    """
    waiting = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(broker.wait_ended())]
    try:
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
    finally:
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def _stop(stop: asyncio.Event, loop: asyncio.AbstractEventLoop, number: signal.Signals) -> None:
    if stop.is_set():
        os._exit(128 + number)
    log.info("signal=%s", number.name)
    stop.set()


def _tune_interpreter() -> None:
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    # glibc returns free memory at the end of the heap from 128 KiB on, and every socket read allocates
    # and frees 256 KiB: with messages of 64 KiB half the CPU time went into page faults. Freeing a large
    # block (never touched, so it costs no memory) raises the threshold to twice its size, 62 MiB.
    bytes(KEPT_BYTES)


def _fail(code: int, error: object) -> int:
    show(f"leveret: {error}", file=sys.stderr)
    return code
