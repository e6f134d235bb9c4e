"""The vertices of a graph from a table with a row per vertex: ids, features, labels and split."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from harness.base.errors import InputError
from harness.data.importing import text
from harness.data.importing.imported import SPLIT_WORDS
from harness.data.importing.text import Table
from harness.data.npz import SPLITS
from harness.data.raw import class_count, features_of

IDS = ("id", "ids", "node", "node_id", "nodeid", "vertex", "vertex_id", "name")
LABEL, SPLIT = ("label", "labels", "y", "class", "target"), ("split", "fold", "set")
NO_LABEL = ("", "nan", "none", "null", "na", "-1")


@dataclass
class Vertices:
    """The vertices of a graph in order: ids [V] text, and `table`, the file with a row for each; the other
    fields are those of harness.data.importing.imported.ImportedGraph."""

    ids: pd.Index
    features: np.ndarray
    labels: np.ndarray
    class_names: list[str] | None
    masks: dict[str, np.ndarray]
    table: Path

    @property
    def vertex_ids(self) -> list[str] | None:
        """The ids, or None where they are 0 to V - 1 in order."""
        numbered = pd.Index(np.arange(len(self.ids)).astype(str))
        return None if self.ids.equals(numbered) else self.ids.tolist()


def read(
    features: Path,
    labels: Path | None,
    *,
    header: bool | None = None,
    rows_in_order: bool = False,
    label_column: str | None = None,
    split_column: str | None = None,
    drop: Sequence[str] = (),
) -> Vertices:
    """The vertices that `features` has a row for, in its order.

    features  a column of ids (the first, or one of the names in IDS), then one column per feature;
              `label_column` and `split_column` may stand among them where `labels` is None
    labels    a table of ids and labels: one column for a class per vertex, several of 0 and 1 for label sets;
              it may have a column of splits too
    header    whether the first line of each table names its columns; None: as `text.read` decides
    rows_in_order   there are no ids: row i is vertex i
    drop      columns of `features` to leave out

    Raises InputError, with the file and, where there is one, the line at fault."""
    table = text.read(features, header, IDS)
    ids, columns = _ids(table, rows_in_order, drop)
    for name in drop:
        table.column(name)  # refused where it is not there
    kept = [column for column in columns if table.names is None or table.names[column] not in drop]
    if labels is None:
        of_labels, order = table, np.arange(len(ids))
        split = _special(table, split_column, SPLIT, kept)
        label = _special(table, label_column, LABEL, kept)
        label_columns = [] if label is None else [label]
        lacks = "line of column names, so none is the label: add such a line, or give --labels FILE"
        if table.names is not None:
            usual = f"{', '.join(LABEL[:-1])} or {LABEL[-1]}"
            lacks = f"column named {usual}: give --label-column NAME, or --labels FILE"
        kept = [column for column in kept if column not in (label, split)]
    else:
        of_labels = text.read(labels, header, IDS)
        own, columns = _ids(of_labels, rows_in_order, known=ids)
        at = ids.get_indexer(own)
        if (at < 0).any():
            row = int(np.argmin(at))
            raise of_labels.refuse(
                row, f'vertex "{own[row]}" has no row in {features}: add one, or remove this label'
            )
        order = np.full(len(ids), -1)  # order[v]: v's row of labels, -1 for none
        order[at] = np.arange(len(own))
        split = _special(of_labels, split_column, SPLIT, columns)
        label_columns = [column for column in columns if column != split]
        if label_column is not None:
            label_columns = [of_labels.column(label_column)]
        lacks = "column of labels: add one"
    if not label_columns:
        raise InputError(f'file "{of_labels.path}" has no {lacks}')
    if not kept:
        raise InputError(f'file "{features}" has no column of features: give one number or more per vertex')
    found, names = _labels(of_labels, label_columns, order)
    masks = {} if split is None else _masks(of_labels, split, order)
    values = table.numbers(kept, ", or leave the column out with --drop")
    try:
        numbers = features_of(values)
    except InputError as error:
        raise InputError(f'file "{features}": {error}, or leave the column out with --drop') from None
    return Vertices(ids, numbers, found, names, masks, table.path)


def endpoints(vertices: Vertices, edges: Table) -> np.ndarray:
    """[rows, 2] the numbers of the vertices that the first two columns of `edges` name. Raises InputError
    where one of them has no row among the vertices."""
    # Both columns are read together, so that ids count as numbers in both or in neither.
    named = edges.cells[:, :2].reshape(-1)
    at = vertices.ids.get_indexer(_plain(named, vertices.ids))
    if (at < 0).any():
        first = int(np.argmin(at))
        raise edges.refuse(
            first // 2,
            f'vertex "{named[first]}" has no row in {vertices.table}: add one, remove this edge, or give'
            " --rows-in-order where rows have no ids",
        )
    return at.reshape(-1, 2)


def _ids(
    table: Table, rows_in_order: bool, drop: Sequence[str] = (), known: pd.Index | None = None
) -> tuple[pd.Index, list[int]]:
    columns = list(range(table.cells.shape[1]))
    names = [name.lower() for name in table.names or ()]
    column = next((names.index(name) for name in IDS if name in names), 0)
    if rows_in_order:
        if table.names and names[column] in IDS and table.names[column] not in drop:
            raise InputError(
                f'file "{table.path}" has ids in {table.name(column)}, and with --rows-in-order no table has'
                " any: leave out --rows-in-order, or rename the column"
            )
        return pd.Index(np.arange(len(table.cells)).astype(str)), columns
    ids = _plain(table.cells[:, column], known)
    repeated = ids.duplicated()
    if repeated.any():
        row = int(np.argmax(repeated))
        raise table.refuse(
            row,
            f'vertex "{ids[row]}" has a row above: give each vertex one row, or --rows-in-order where'
            " rows have no ids",
        )
    if (ids == "").any():
        raise table.refuse(int(np.argmax(ids == "")), "the id is empty: give every vertex an id")
    return ids, [c for c in columns if c != column]


def _plain(ids: np.ndarray, known: pd.Index | None = None) -> pd.Index:
    """Ids as text. Where all are whole numbers, and those of the vertices that are `known` too, 7, 07 and 7.0
    are one vertex."""
    numbers = _whole(ids)
    if numbers is None or (known is not None and _whole(known.to_numpy()) is None):
        return pd.Index(ids.astype(str))
    return pd.Index(numbers.astype(str))


def _whole(ids: np.ndarray) -> np.ndarray | None:
    """[rows] int64, where all ids are whole numbers, else None."""
    numbers = pd.to_numeric(pd.Series(ids), errors="coerce").to_numpy(np.float64)
    if len(ids) and np.all(np.abs(numbers) < 2**53) and np.all(numbers == np.floor(numbers)):
        return numbers.astype(np.int64)
    return None


def _special(table: Table, asked: str | None, usual: Sequence[str], among: list[int]) -> int | None:
    """The column asked for, or the one with a usual name, or None."""
    if asked is not None:
        return table.column(asked)
    names = [name.lower() for name in table.names or ()]
    return next((names.index(name) for name in usual if name in names and names.index(name) in among), None)


def _labels(table: Table, columns: list[int], order: np.ndarray) -> tuple[np.ndarray, list[str] | None]:
    """[V] classes, or [V, C] label sets, and the classes' names where they are not 0, 1, ... already."""
    if len(columns) > 1:
        if (order < 0).any():
            raise InputError(
                f'file "{table.path}" has no row for {int((order < 0).sum())} vertices: label sets'
                " need one each"
            )
        values = table.numbers(columns)
        if not np.isin(values, (0, 1)).all():
            row = int(np.argmin(np.isin(values, (0, 1)).all(1)))
            raise table.refuse(row, "several columns of labels are label sets: give 0 or 1 in each")
        names = [table.names[c] for c in columns] if table.names else None
        return values.astype(np.uint8)[order], names
    cells = np.where(order >= 0, table.cells[order, columns[0]], "")
    return _classes(cells)


def _classes(cells: np.ndarray) -> tuple[np.ndarray, list[str] | None]:
    """[V] class numbers of text labels, -1 for none, and the names of the classes. Labels that are whole
    numbers from 0 without implausible gaps stay as they are, and the names are None."""
    lacking = np.isin(np.char.lower(cells), NO_LABEL)
    lacking |= pd.to_numeric(pd.Series(cells), errors="coerce").to_numpy(np.float64) == -1  # as -1.0
    given = cells[~lacking]
    numbers = pd.to_numeric(pd.Series(given), errors="coerce").to_numpy(np.float64)
    labels = np.full(len(cells), -1, np.int64)
    whole = (
        len(given) > 0 and np.all(numbers == np.floor(numbers)) and np.all((numbers >= 0) & (numbers < 2**31))
    )
    if whole and numbers.min() == 0:
        labels[~lacking] = numbers.astype(np.int64)
        try:
            class_count(labels)
            return labels, None
        except InputError:  # an implausible count: these numbers are names of classes
            pass
    if whole:
        _, first, labels[~lacking] = np.unique(numbers, return_index=True, return_inverse=True)
        return labels, given[first].tolist()
    names, labels[~lacking] = np.unique(given, return_inverse=True)
    return labels, names.tolist()


def _masks(table: Table, column: int, order: np.ndarray) -> dict[str, np.ndarray]:
    """By split [V] bool, from the words train, val (valid, validation) and test, or nothing."""
    cells = table.cells[:, column]
    words = np.char.lower(cells)
    known = np.isin(words, (*SPLIT_WORDS, "", "none"))
    if not known.all():
        row = int(np.argmin(known))
        raise table.refuse(row, f'split "{cells[row]}" is not known: give train, val, test or nothing')
    meant = np.array([SPLIT_WORDS.get(word, "") for word in words])
    return {name: (order >= 0) & (meant == name)[order] for name in SPLITS}
