"""SIGHUP: what ``leveret serve`` reads again while it runs.

The certificates are read, if there are any. The configuration file is read and checked as at the start. If it is
invalid, the log says so and nothing changes. The log is opened anew, with other levels and files. Limits take effect
at once, settings of connections for those that are opened from then on. Of all other settings that have changed, a
line says that they need a restart.
"""

from __future__ import annotations

import logging
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

from leveret.core.errors import ConfigError
from leveret.core.log import output as log_output
from leveret.core.log.loggers import logger
from leveret.server.broker import Broker
from leveret.server.config import files as conf_file
from leveret.server.config.config import Config
from leveret.server.config.keys import KEYS

log = logger(__name__)

LIMITS: Final = frozenset({
    "connections_max", "connection_channels_max", "memory_high_watermark", "disk_free_limit",
    "handshake_s", "frame_max", "channel_max", "heartbeat_s", "message_bytes_max", "consumer_timeout_ms",
})  # fmt: skip
LOG: Final = frozenset({"log_level", "log_file", "log_file_level", "log_exchange_level"})

_KEYS: Final = {key.field: key.native for key in KEYS}


class Reload:
    """Reads the settings of a running broker again.

    Args:
        path: of the configuration file; None: there is none.
        given: the settings of the command line, which override the file.
        handlers: of the process's log; they are replaced.
        exchange: the handler that publishes the log, if it is published.
    """

    def __init__(
        self,
        broker: Broker,
        path: Path | None,
        given: dict[str, Any],
        handlers: list[logging.Handler],
        exchange: logging.Handler | None,
    ) -> None:
        self._broker = broker
        self._config = broker.config
        self._path = path
        self._given = given
        self._handlers = handlers
        self._exchange = exchange

    def __call__(self) -> None:
        """Read the certificates, and read and apply the settings."""
        self._broker.reload_certificates()
        try:
            config = conf_file.load(self._path, self._given)
            self._open_log(config)
        except (ConfigError, OSError) as error:
            log.error("settings not read again error=%s", error)
            return
        changed = [
            each.name
            for each in fields(Config)
            if getattr(config, each.name) != getattr(self._config, each.name)
        ]
        for field in changed:
            if field not in LIMITS | LOG:
                log.warning("setting needs a restart key=%s", _KEYS.get(field, field))
        applied = {name: getattr(config, name) for name in changed if name in LIMITS | LOG}
        self._config = replace(self._config, **applied)
        limits = {name: value for name, value in applied.items() if name in LIMITS}
        self._broker.change_limits(limits)
        log.info("settings read again changed=%s", ",".join(_KEYS[name] for name in applied))

    def set_log_level(self, level: str) -> None:
        """Set the level of all parts of the log, until the settings are read again."""
        config = replace(
            self._config, log_level=level, log_file_level=level, log_exchange_level=level
        )
        self._open_log(config)
        self._config = config

    def _open_log(self, config: Config) -> None:
        log_output.reconfigure(
            self._handlers, config.log_level, config.log_file, config.log_file_level
        )
        if self._exchange is not None:
            level = config.log_exchange_level or config.log_level
            self._exchange.setLevel(log_output.level_number(level))
            log_output.set_level()
