"""The definitions of the source: from a file, or from the HTTP API of its management plug-in."""

from __future__ import annotations

import base64
import os
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from leveret.core.errors import ConfigError
from leveret.management import json_text
from leveret.management.definitions.file import read_definitions

API: Final = "/api/definitions"
_TIMEOUT_S: Final = 60.0
_STREAM: Final = "stream"


class Queue(NamedTuple):
    """A queue of the source; ``why_not`` is empty, or says why its messages cannot be moved."""

    vhost: str
    name: str
    why_not: str = ""


def definitions_of(place: str, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return a definitions document.

    Args:
        place: a file, ``-`` for standard input, or ``http[s]://[USER@]HOST:PORT`` of the management plug-in.
        environment: has the password of that user in ``LEVERET_MIGRATE_HTTP_PASSWORD``; guest's is known.

    Raises:
        RefusedError: the file is no definitions document.
        ConfigError: the URL is malformed, or does not answer with definitions.
    """
    if not place.startswith(("http://", "https://")):
        return read_definitions(place)
    parts = urlsplit(place)
    if parts.password is not None:
        raise ConfigError(
            "the URL of the definitions has a password, which the list of processes shows:"
            " set LEVERET_MIGRATE_HTTP_PASSWORD"
        )
    user = unquote(parts.username or "guest")
    password = environment.get("LEVERET_MIGRATE_HTTP_PASSWORD", "guest" if user == "guest" else "")
    host = parts.netloc.rpartition("@")[2]
    url = f"{parts.scheme}://{host}{parts.path.rstrip('/').removesuffix(API)}{API}"
    login = base64.b64encode(f"{user}:{password}".encode()).decode()
    request = urllib.request.Request(url, headers={"Authorization": f"Basic {login}"})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            document = json_text.decode(answer.read())
    except urllib.error.HTTPError as error:
        error.close()
        raise ConfigError(f"{url} answers {error.code} {error.reason}: check user {user}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{url} cannot be read: {error}") from None
    if not isinstance(document, dict) or "queues" not in document:
        raise ConfigError(f"{url} has no definitions: is it the management plug-in?")
    return document


def queues_of(
    document: Mapping[str, Any], vhosts: Sequence[str], queues: Sequence[str]
) -> list[Queue]:
    """Return the queues of a document whose names fit any of the globs; without globs all.

    Raises:
        ConfigError: the document has entries that are no queues.
    """
    found = []
    for entry in document.get("queues", []):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise ConfigError("the definitions have a queue without a name")
        name, vhost = entry["name"], entry.get("vhost", document.get("vhost", "/"))
        if _fits(vhost, vhosts) and _fits(name, queues):
            arguments = entry.get("arguments") or {}
            is_stream = _STREAM in {arguments.get("x-queue-type"), entry.get("type")}
            found.append(Queue(vhost, name, "it is a stream" if is_stream else ""))
    return found


def _fits(name: str, globs: Sequence[str]) -> bool:
    return not globs or any(fnmatchcase(name, glob) for glob in globs)
