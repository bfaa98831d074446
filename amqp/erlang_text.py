"""Terms as Erlang prints them, for error texts that must read like RabbitMQ's.

``~w`` writes a binary as its octets, ``~p`` as a quoted string where every octet is printable
Latin-1, and breaks texts at 80 columns (``io_lib_pretty``). Octets above 127 stand in
the results as surrogate escapes where they are not UTF-8, so that encoding the text gives them back.
"""

from __future__ import annotations

from typing import Final

_LINE: Final = 80
_ESCAPES: Final = {
    8: "\\b",
    9: "\\t",
    10: "\\n",
    11: "\\v",
    12: "\\f",
    13: "\\r",
    27: "\\e",
    34: '\\"',
    92: "\\\\",
}
_PRINTABLE: Final = frozenset((*range(32, 127), *range(160, 256), 8, 9, 10, 11, 12, 13, 27))


def octets(data: bytes) -> str:
    """Return the binary as ``~w`` prints it: ``<<1,2,3>>``."""
    return f"<<{','.join(map(str, data))}>>"


def binary(data: bytes, column: int = 0) -> str:
    """Return the binary as ``~p`` prints it when ``column`` characters stand before it on the line."""
    if data and _PRINTABLE.issuperset(data):
        return f'<<"{_quoted(data)}">>'
    text = octets(data)
    if len(text) < _LINE - column - 1:
        return text
    return _broken(data, column, len(text))


def string(data: bytes) -> str:
    """Return the octets as ``~p`` prints a list of them."""
    if data and _PRINTABLE.issuperset(data):
        return f'"{_quoted(data)}"'
    return f"[{','.join(map(str, data))}]"


def tagged(tag: str, value: int | str, column: int = 0) -> str:
    """Return ``{tag,Value}`` as ``~p`` prints it at ``column``; a text is printed already."""
    text = f"{{{tag},{value}}}"
    if len(text) < _LINE - column - 1:
        return text
    return f"{{{tag},\n{' ' * (column + 1)}{value}}}"


def column_after(text: str) -> int:
    """Return how many characters Erlang counts on the last line of ``text``: one per octet."""
    return len(text[text.rfind("\n") + 1 :].encode("utf-8", "surrogateescape"))


def _quoted(data: bytes) -> str:
    return b"".join(
        _ESCAPES[octet].encode() if octet in _ESCAPES else bytes((octet,)) for octet in data
    ).decode("utf-8", "surrogateescape")


def _broken(data: bytes, column: int, length: int) -> str:
    """Break a list of octets over lines, as ``io_lib_pretty:pp_binary`` does."""
    width = max(8, min(_LINE - column - 3, length - 4))
    parts: list[str] = []
    room = width
    for index, octet in enumerate(data):
        item = f"{octet}," if index + 1 < len(data) else f"{octet}"
        if room < len(item):
            parts.append("\n" + " " * (column + 2))
            room = width
        parts.append(item)
        room -= len(item)
    return f"<<{''.join(parts)}>>"
