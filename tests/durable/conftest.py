"""The broker whose actors can be killed, as in ``chaos``."""

from __future__ import annotations

from chaos.conftest import chaos

__all__ = ["chaos"]
