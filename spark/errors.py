"""Errors of options and of reading snapshots; each text names the fault, its place and the remedy."""

from __future__ import annotations

from leveret.core.errors import ConfigError, LeveretError, StoreError


class OptionError(ConfigError):
    """An option is unknown, has an invalid value, or has no effect where it is set; or a set of columns is wrong."""


class NotASnapshot(ConfigError):  # noqa: N818  named after the fault
    """A path is not a snapshot that can be read."""


class NothingSelected(LeveretError):  # noqa: N818  named after the fault
    """A filter selects nothing; the text lists the names that exist."""


class NotAnArchive(ConfigError):  # noqa: N818  named after the fault
    """A path has no archived queue that a stream could read."""


class DataLoss(StoreError):  # noqa: N818  named after the fault
    """Messages of a snapshot or an archive cannot be read."""
