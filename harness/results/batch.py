"""Rows of the trace as Arrow record batches, without pandas.

`RecordBatch.from_pylist` imports pandas to see whether it was given one of pandas' objects. That takes half a
second in every worker, and a worker only writes. Arrow's memory layout is that of numpy arrays, so columns
are handed over as buffers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from harness.base.checksum import Damaged

SEAL = b"xxh3"  # key of a batch's checksum in its metadata


def record_batch(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """`rows` as a batch of `schema`, whose columns are numbers, flags, strings, structs, or lists of them. A
    key that a row lacks is null. OverflowError for an integer that its column cannot hold."""
    columns = [_array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def write_sealed(stream: pa.ipc.RecordBatchStreamWriter, batch: pa.RecordBatch) -> None:
    """Append a batch to a stream, with the checksum of what it says."""
    stream.write_batch(batch, custom_metadata={SEAL: _checksum(batch)})


def sealed_batches(stream: pa.ipc.RecordBatchStreamReader) -> Iterator[pa.RecordBatch]:
    """The batches of a stream. Raises Damaged at the first batch whose checksum is not that of its rows, and
    pa.ArrowException or OSError where the stream is cut off."""
    while True:
        try:
            found = stream.read_next_batch_with_custom_metadata()
        except StopIteration:
            return
        found.batch.validate(full=True)
        if (found.custom_metadata or {}).get(SEAL) != _checksum(found.batch):
            raise Damaged("the checksum of a batch is not that of its rows")
        yield found.batch


def _checksum(batch: pa.RecordBatch) -> bytes:
    return xxhash.xxh3_128_hexdigest(batch.serialize()).encode()


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    count, there = len(values), np.array([value is not None for value in values], bool)
    validity = None if there.all() else _bits(there)
    if pa.types.is_string(kind):
        texts = [b"" if value is None else value.encode() for value in values]
        return pa.Array.from_buffers(kind, count, [validity, _offsets(texts), pa.py_buffer(b"".join(texts))])
    if pa.types.is_list(kind):
        lists = [() if value is None else value for value in values]
        children = [_array([each for items in lists for each in items], kind.value_type)]
        return pa.Array.from_buffers(kind, count, [validity, _offsets(lists)], children=children)
    if pa.types.is_struct(kind):
        given = [value or {} for value in values]
        children = [_array([each.get(field.name) for each in given], field.type) for field in kind]
        return pa.Array.from_buffers(kind, count, [validity], children=children)
    filled = [0 if value is None else value for value in values]
    if pa.types.is_boolean(kind):
        return pa.Array.from_buffers(kind, count, [validity, _bits(np.array(filled, bool))])
    return pa.Array.from_buffers(
        kind, count, [validity, pa.py_buffer(np.array(filled, kind.to_pandas_dtype()))]
    )


def _offsets(parts: Sequence[Sequence[Any]]) -> pa.Buffer:
    """[len(parts) + 1]: where each part begins, and where the last ends, when one stands after another."""
    return pa.py_buffer(np.cumsum([0, *map(len, parts)], dtype=np.int32))


def _bits(flags: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))
