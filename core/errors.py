"""The root of Leveret's exceptions and the branches under it.

::

    LeveretError
    ├── ProtocolError        a peer broke the protocol (leveret.amqp.errors: SoftError, HardError)
    ├── StoreError           a file or the metadata cannot be read or written as promised
    ├── ActorError           a request to the actor runtime cannot be fulfilled
    ├── DependencyError      another part has failed and reports it
    └── ConfigError          a setting is unknown or has an invalid value
"""

from __future__ import annotations


class LeveretError(Exception):
    """Root of all errors that Leveret raises deliberately."""


class ProtocolError(LeveretError):
    """A peer broke the protocol; the subclasses carry the reply code."""


class StoreError(LeveretError):
    """Durable state cannot be read or written as promised."""


class ActorError(LeveretError):
    """A request to the actor runtime cannot be fulfilled."""


class DependencyError(LeveretError):
    """Another part has failed, writes that to the log and takes down what depends on it.

    An actor that meets this error ends in order, as by ``exit({shutdown, Reason})`` in Erlang.
    """


class ConfigError(LeveretError):
    """A setting is unknown or has an invalid value."""
