"""Rows of Parquet files for the sink: their columns, those in names of folders, and keys made of file and number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from leveret.spark.errors import OptionError

_BATCH_ROWS: Final = 8_192
_BATCH_BYTES: Final = 16 << 20


@dataclass(frozen=True)
class ParquetRows:
    """A Parquet file; ``name`` is its path below the folder that was named, with the folder's name before it."""

    path: Path
    name: str

    @cached_property
    def metadata(self) -> Any:
        try:
            return pq.read_metadata(self.path)
        except pa.ArrowInvalid as error:
            raise OptionError(f"{self.path} is no Parquet file: {error}") from None

    @cached_property
    def folders(self) -> dict[str, str]:
        """Columns that are written in the names of folders."""
        parts = [part.partition("=") for part in Path(self.name).parts[:-1]]
        return {name: unquote(value) for name, separator, value in parts if separator}

    @cached_property
    def names(self) -> list[str]:
        return [*self.metadata.schema.to_arrow_schema().names, *self.folders]

    def schema(self, chosen: Mapping[str, str]) -> Any:
        """Return the schema of the batches."""
        empty = pa.RecordBatch.from_pylist([], schema=self.metadata.schema.to_arrow_schema())
        return self._batch(empty, chosen, 0).schema

    def batches(self, chosen: Mapping[str, str]) -> Iterator[Any]:
        """Yield record batches with the columns of the sink and the keys of rows.

        Args:
            chosen: for each column of the sink the file's, or that of a folder's name.
        """
        rows = self.metadata.num_rows
        size = sum(
            self.metadata.row_group(each).total_byte_size
            for each in range(self.metadata.num_row_groups)
        )
        count = max(1, min(_BATCH_ROWS, _BATCH_BYTES * rows // max(1, size)))
        inside = [name for name in chosen.values() if name not in self.folders]
        start = 0
        with pq.ParquetFile(self.path) as file:
            for batch in file.iter_batches(count, columns=inside):
                yield self._batch(batch, chosen, start)
                start += batch.num_rows

    def _batch(self, batch: Any, chosen: Mapping[str, str], start: int) -> Any:
        count = batch.num_rows
        arrays = {
            name: pa.repeat(pa.scalar(self.folders[source]), count)
            if source in self.folders
            else _plain(batch.column(source))
            for name, source in chosen.items()
        }
        if "body" in arrays and pa.types.is_string(arrays["body"].type):
            arrays["body"] = arrays["body"].cast(pa.binary())
        arrays["vhost"] = pa.repeat(pa.scalar(""), count)
        arrays["queue"] = pa.repeat(pa.scalar(self.name), count)
        arrays["seq_id"] = pa.array(range(start, start + count), pa.int64())
        return pa.record_batch(list(arrays.values()), names=list(arrays))


def _plain(column: Any) -> Any:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def files_of(text: str) -> list[ParquetRows]:
    """Return the files of a path; names that begin with ``_`` or ``.`` are not data; OptionError: there are none."""
    root = Path(text)
    if root.is_file():
        return [ParquetRows(root, root.name)]
    if not root.is_dir():
        raise OptionError(f"{root} does not exist")
    below = [path.relative_to(root) for path in root.rglob("*.parquet")]
    kept = [path for path in below if not any(part[0] in "_." for part in path.parts)]
    if not kept:
        raise OptionError(f"{root} has no files *.parquet")
    base = root.absolute().name
    return [ParquetRows(root / path, f"{base}/{path.as_posix()}") for path in kept]


def check_names(files: list[ParquetRows]) -> None:
    """Raise OptionError if two files have the same name, and so their rows the same keys."""
    seen: dict[str, ParquetRows] = {}
    for file in files:
        other = seen.setdefault(file.name, file)
        if other is not file:
            raise OptionError(
                f"{other.path} and {file.path} have the same name, which is the key of their rows:"
                " import one after the other"
            )
