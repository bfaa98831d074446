"""A definitions file as JSON: read and checked to be an object, or refused with its place."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from leveret.management import json_text
from leveret.management.errors import RefusedError


def read_definitions(file: str | None) -> dict[str, Any]:
    """Read a definitions document; None or ``-`` is standard input.

    Raises:
        RefusedError: the file cannot be read, or is not a JSON object.
    """
    from_stdin = file in {None, "-"}
    try:
        source = sys.stdin.read().encode() if from_stdin else Path(str(file)).read_bytes()
        document = json_text.decode(source)
    except FileNotFoundError as error:
        raise RefusedError(f"Bad argument: File {file} does not exist") from error
    except (OSError, UnicodeError) as error:
        place = "standard input" if from_stdin else file
        raise RefusedError(f"cannot read {place}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise RefusedError(
            f"Failed to deserialise input (format: JSON) (error: {error})"
        ) from error
    if not isinstance(document, dict):
        raise RefusedError("Failed to deserialise input (format: JSON) (error: not an object)")
    return document
