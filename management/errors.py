"""The refusal that all parts of the server share."""

from __future__ import annotations

import os
from typing import Final

from leveret.core.errors import LeveretError

EX_USAGE: Final = os.EX_USAGE
EX_DATA: Final = os.EX_DATAERR
EX_NO_USER: Final = os.EX_NOUSER
EX_UNAVAILABLE: Final = os.EX_UNAVAILABLE
EX_SOFTWARE: Final = os.EX_SOFTWARE

CLUSTER_MISSING: Final = "aiohttp is missing: pip install 'leveret[cluster]'"

SINGLE_NODE: Final = (
    "this is a single node, and no other can join it: nodes of a cluster are started with "
    "leveret serve --cluster"
)


class RefusedError(LeveretError):
    """A request of the operator is refused; the text is for the operator.

    Attributes:
        exit_code: of rabbitmqctl in such a case.
        is_bare: rabbitmqctl prints the text without ``Error:`` above it.
    """

    def __init__(self, text: object, exit_code: int = EX_DATA, *, is_bare: bool = False) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.is_bare = is_bare
