"""Operations, and bytes read and written, of products and of passes over rows, in closed forms of their
shapes. A roofline (`harness.model.replay`) turns them into seconds.

    dense      Z = X W                       X [rows, columns], W [columns, width]
    sparse     Z = r * (B + s I) (c * X)     B [rows, columns] with `entries`, X [columns, width]
    attention  the forward or the backward pass of an edge softmax over `entries` edges, `width` values per
               row, all heads together
    stream     passes over all values of [rows, width]: activations, norms, sums, optimisers
    drop       dropout of [rows, width]: a random number for each value
    pack       `rows` rows of `width` values, gathered from or added to the rows of a table that an index
               names; the table has `columns` rows (0: no more than `rows`)
    code       rows [rows, width] into codes of fewer bits, or back
    sample     `rows` drawn out of `entries`

Operations are counted for products (the first three) only. Bytes are those that the processor asks for: a
product over a sparse block reads a row of X for every entry. Caches answer a part of that, which the
roofline's efficiency stands for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import torch  # a report needs none

PRODUCTS = ("dense", "sparse", "attention")
KINDS = (*PRODUCTS, "stream", "drop", "pack", "code", "sample")


class Work(NamedTuple):
    """One product or pass.

    kind      one of KINDS, which says what `rows`, `columns`, `entries` and `width` mean (see the module)
    flops     operations; a multiply-add is two
    read, written   bytes
    """

    kind: str
    rows: int
    columns: int
    entries: int
    width: int
    flops: int
    read: int
    written: int


def dense(rows: int, columns: int, width: int, size: int) -> Work:
    """The work of Z [rows, width] = X [rows, columns] W [columns, width], values of `size` bytes:

    flops 2 rows columns width; read (rows columns + columns width) size; written rows width size
    """
    entries = rows * columns
    read = size * (entries + columns * width)
    return Work("dense", rows, columns, entries, width, 2 * entries * width, read, size * rows * width)


def sparse(
    rows: int,
    columns: int,
    entries: int,
    width: int,
    size: int,
    *,
    pointer: int = 4,
    values: bool = False,
    row: bool = False,
    column: bool = False,
    loops: bool = False,
    accumulate: bool = False,
) -> Work:
    """The work of Z [rows, width] = r * (B + s I) (c * X), with the flags below as 0 or 1:

    flops    width (entries (1 + values) + rows (row + loops) + columns column)
    read     entries (width size + 4 for its column + values size) + (rows + 1) pointer
             + rows size row + columns (width + 1) size column + rows width size loops
             + rows width size accumulate
    written  rows width size + columns width size column

    size, pointer   bytes of a value, and of a row's pointer
    values          whether B has values; else all its entries are 1
    row, column     whether there is a factor r per row, c per column
    loops           whether s is not 0
    accumulate      whether the product is added to what Z holds
    """
    flops = width * (entries * (1 + values) + rows * (row + loops) + columns * column)
    read = entries * (size * (width + values) + 4) + (rows + 1) * pointer
    read += size * (rows * (row + width * (loops + accumulate)) + columns * (width + 1) * column)
    return Work(
        "sparse", rows, columns, entries, width, flops, read, size * width * (rows + columns * column)
    )


def attention(rows: int, columns: int, edges: int, heads: int, width: int, size: int) -> tuple[Work, Work]:
    """The work of an edge softmax, (forward, backward); y [columns, width]; self-loops count as edges.

    forward    flops edges (2 width + 4 heads); read edges (width + 2 heads) size + 4 edges + 8 (rows + 1);
               written (rows width + edges heads) size
    backward   flops edges (4 width + 5 heads); read edges (2 width + 5 heads) size + 16 edges
               + 8 (rows + columns + 2); written (columns (width + heads) + rows heads + edges heads) size
    """
    forward = Work(
        "attention",
        rows,
        columns,
        edges,
        width,
        edges * (2 * width + 4 * heads),
        edges * ((width + 2 * heads) * size + 4) + 8 * (rows + 1),
        (rows * width + edges * heads) * size,
    )
    backward = Work(
        "attention",
        columns,
        rows,
        edges,
        width,
        edges * (4 * width + 5 * heads),
        edges * ((2 * width + 5 * heads) * size + 16) + 8 * (rows + columns + 2),
        (columns * (width + heads) + (rows + edges) * heads) * size,
    )
    return forward, backward


def stream(rows: int, width: int, size: int, reads: int, writes: int) -> Work:
    """Passes that read [rows, width] `reads` times and write it `writes` times."""
    values = size * rows * width
    return Work("stream", rows, 0, 0, width, 0, values * reads, values * writes)


def drop(rows: int, width: int, size: int) -> Work:
    """Dropout: every value is read and written once."""
    return Work("drop", rows, 0, 0, width, 0, size * rows * width, size * rows * width)


def pack(rows: int, width: int, size: int, added: bool = False, of: int = 0) -> Work:
    """The work of gathering rows from the places that an index of 8 bytes per row names, or, where `added`,
    of adding rows to what lies there.

    of   rows of the table in which these places are, where it has more than `rows`
    """
    moved = size * rows * width
    return Work("pack", rows, of, 0, width, 0, moved * (1 + added) + 8 * rows, moved)


def moved(rows: np.ndarray | torch.Tensor, of: int = 0) -> Work:
    """`pack` of these rows [k, F], gathered from a table of `of` rows."""
    return pack(len(rows), rows.shape[1], rows.itemsize, of=of)


def copied(rows: np.ndarray | torch.Tensor) -> Work:
    """`stream` of a copy of these rows [k, F]."""
    return stream(len(rows), rows.shape[1], rows.itemsize, 1, 1)


def code(rows: int, width: int, read: int, written: int) -> Work:
    """The work of coding or decoding rows: bytes read in the one form and written in the other."""
    return Work("code", rows, 0, 0, width, 0, read, written)


def sample(drawn: int, of: int) -> Work:
    """The work of drawing `drawn` of `of` things, 8 bytes each: all are read, the drawn ones written."""
    return Work("sample", drawn, 0, of, 1, 0, 8 * of, 8 * drawn)
