"""Failures of the shared store.

::

    ClusterError
    ├── UnavailableError      no server has done it; it has had no effect
    ├── UnknownOutcomeError   it was sent and not answered: perhaps it has taken effect, perhaps it will
    ├── LoginRefusedError     user or password are wrong, or the user may not do it
    ├── CompactedError        the revision asked for is not kept any more
    ├── LeaseGoneError        the lease has ended, or never was
    ├── TooLargeError         the request, or its answer, is above a limit
    └── GatewayError          the answer is none of etcd's, or says that the request is wrong
"""

from __future__ import annotations

from leveret.core.errors import LeveretError


class ClusterError(LeveretError):
    """A request to the shared store has failed; the text names the endpoint and the remedy."""


class UnavailableError(ClusterError):
    """No server has carried the request out. It has had no effect."""


class UnknownOutcomeError(ClusterError):
    """A write was sent and not answered: it may have taken effect, or may do so later."""


class LoginRefusedError(ClusterError):
    """The store does not know the user, or does not let it do this."""


class CompactedError(ClusterError):
    """The revision asked for is not kept any more."""


class LeaseGoneError(ClusterError):
    """The lease has ended, or never was. The request has had no effect."""


class TooLargeError(ClusterError):
    """The request, or its answer, is above a limit."""


class GatewayError(ClusterError):
    """An endpoint is no etcd of version 3.4 or newer, or etcd says that the request is wrong."""
