"""The root of Leveret's exceptions and the branches under it.

::

    LeveretError
    ├── ProtocolError        a peer broke the protocol (leveret.amqp.errors: SoftError, HardError)
    ├── StoreError           a file or the metadata cannot be read or written as promised
    ├── ActorError           the actor runtime was asked for something it cannot do
    └── ConfigError          a setting is unknown or has a value that cannot be used
"""

from __future__ import annotations


class LeveretError(Exception):
    """Root of everything Leveret raises on purpose."""


class ProtocolError(LeveretError):
    """A peer broke the protocol; the subclasses carry the reply code."""


class StoreError(LeveretError):
    """Durable state cannot be read or written as promised."""


class ActorError(LeveretError):
    """The actor runtime was asked for something it cannot do."""


class ConfigError(LeveretError):
    """A setting is unknown or has a value that cannot be used."""
