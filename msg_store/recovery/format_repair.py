"""Repair of a lost FORMAT: the header of every other file names the store, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from leveret.core.system.files import Files
from leveret.msg_store.format.errors import Corrupt, FormatLost
from leveret.msg_store.format.file_header import (
    HEADER_BYTES,
    JOURNAL_MAGIC,
    RDQ_MAGIC,
    FileHeader,
    decode_header,
)
from leveret.msg_store.format.folder import FORMAT, read_format, write_format


def restore_format(files: Files, path: Path) -> str:
    """Write a store's FORMAT anew if it cannot be read, with the uuid in most headers of its files.

    Returns:
        The damage of FORMAT; nothing if it can be read, or no header tells the uuid.

    Raises:
        FormatTooNew: FORMAT is of a newer version.
    """
    uuids = Counter(header.uuid for header in _headers(files, path))
    if FORMAT in files.names(path):
        try:
            found = read_format(files, path)
        except FormatLost as error:
            why = str(error)
        else:
            if not uuids or found in uuids:
                return ""
            why = f"{path / FORMAT} is of store {found.hex()}, and no file of it"
    else:
        why = f"{path} has no {FORMAT}"
    if not uuids:
        return ""
    ((uuid, _),) = uuids.most_common(1)
    created_ms = min(each.created_ms for each in _headers(files, path) if each.uuid == uuid)
    write_format(files, path, uuid, created_ms)
    return why


def _headers(files: Files, path: Path) -> Iterator[FileHeader]:
    names = files.names(path)
    for folder, ending, magic in (("rdq", ".rdq", RDQ_MAGIC), ("journal", ".jnl", JOURNAL_MAGIC)):
        if folder not in names:
            continue
        for name in files.names(path / folder):
            if name.endswith(ending):
                with files.open_read(path / folder / name) as file:
                    first = file.pread(HEADER_BYTES, 0)
                try:
                    yield decode_header(first, magic)
                except Corrupt:
                    continue
