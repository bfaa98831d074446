"""The refusal that all parts of the server share."""

from __future__ import annotations

from leveret.core.errors import LeveretError


class RefusedError(LeveretError):
    """A request of the operator is refused; the text is for the operator."""
