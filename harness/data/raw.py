"""Reads raw files that may be truncated, corrupt or hostile; `Raw` is what every reader returns.

No pickle is loaded here: an npz's object arrays are never touched, and a file is given to numpy only where
its first bytes are those of the wanted format. Whatever exception a file causes becomes one InputError that
names the file and says what to do. torch_geometric's and ogb's readers are not used for these files, since
they execute Planetoid's pickles and check neither sizes nor numbers."""

import codecs
import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.base.errors import InputError, listed
from harness.data.csr import InEdges, sparse_rows
from harness.data.partition.shard import Table

FETCH = "fetch the file again"
ARCHIVE, ARRAY = "a zip archive", "a single array (npy)"
# What a file is, by the bytes it begins with: the formats that graphs and tables are commonly kept in.
SIGNATURES = (
    (b"PK\x03\x04", ARCHIVE),
    (b"PK\x05\x06", ARCHIVE),  # without members
    (b"\x93NUMPY", ARRAY),
    *((b"\x80" + bytes([protocol]), "a pickle, which is never loaded") for protocol in range(2, 6)),
    (b"\x1f\x8b", "a gzip file"),
    (b"\x89HDF", "an HDF5 file"),
    (b"PAR1", "a parquet file"),
)


Masks = tuple[np.ndarray, np.ndarray, np.ndarray]  # (train, val, test), each [K, V] bool

# Bytes of memory that arrays may take per byte of their file. Deflate reaches 1032; the sparse features of
# real graphs, made dense, about 300.
EXPANSION = 2000
SPARED = 64 << 20  # bytes of memory that any file may take, however small it is
# The arrays of compressed rows of features, as scipy names them.
SPARSE = ("attr_data", "attr_indices", "attr_indptr", "attr_shape")
LARGE = 256 << 20  # bytes of a dense table: from this size on, features that a file keeps sparse stay sparse


@dataclass
class Raw:
    """A data set as its files give it, before a split is chosen.

    features     [V, F] float32; see `harness.data.graph.Graph`
    labels       [V] int32, -1 where a vertex has none; or [V, C] uint8
    num_classes  C
    masks        (train, val, test), each [K, V] bool for K alternative splits; None where the data set has
                 none
    """

    edges: InEdges
    features: Table
    labels: np.ndarray
    num_classes: int
    masks: Masks | None


def damaged(what: str) -> InputError:
    """The error for a file that is not what its publisher stores."""
    return InputError(f"{what}: {FETCH}")


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn any exception that reading `path` raises into an InputError, one sentence that names the file."""
    try:
        yield
    except InputError as error:
        raise InputError(f'file "{path}": {error}') from None
    except (PermissionError, IsADirectoryError) as error:
        raise InputError(
            f'file "{path}" cannot be read: {error.strerror}; make it a file that this user may read'
        ) from None
    except MemoryError as error:
        raise damaged(f'file "{path}" asks for more memory than there is ({error})') from None
    except Exception as error:  # bytes from anywhere can make a format's reader raise anything
        reason = " ".join(str(error).split())[:160] or "it ends too early"
        raise InputError(
            f'file "{path}" cannot be read ({type(error).__name__}: {reason}); it is truncated or not in its '
            "format: replace it by a whole copy"
        ) from None


def affordable(path: Path, size: int) -> None:
    """Raise InputError where the content of `path` would take `size` bytes of memory and that is more than
    SPARED and more than EXPANSION times the file's own size: a few kB may describe terabytes."""
    own = path.stat().st_size
    if size > max(SPARED, EXPANSION * own):
        raise damaged(
            f"its {own} bytes would take {size / 1e9:,.1f} GB of memory, more than {EXPANSION} for one"
        )


def arrays(path: Path, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """The `required` arrays of an npz, and those `optional` ones that it has. Raises InputError where a
    required array is missing, or an array holds Python objects."""
    with _archive(path) as archive:
        for key in required:
            if key not in archive.files:
                raise InputError(f'array "{key}" is missing (there are: {listed(archive.files)}); {FETCH}')
        found = {}
        for key in (*required, *optional):
            if key in archive.files:
                with _numbers_only(f'array "{key}"'):
                    found[key] = archive[key]
        return found


def array_names(path: Path, mend: str = FETCH) -> list[str]:
    """The names of an npz's arrays; nothing else of it is read.

    For a file of another kind InputError says what kind it is, and `mend`."""
    with _archive(path, mend) as archive:
        return list(archive.files)


def array(path: Path) -> np.ndarray:
    """The array of an npy file."""
    with reading(path), _numbers_only("this array"):
        _check_kind(path, ARRAY, FETCH)
        return np.load(path, allow_pickle=False)


def json_object(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds. Raises InputError where it holds something else."""
    with reading(path):
        found = json.loads(path.read_bytes())
        if not isinstance(found, dict):
            raise damaged(f"this holds a JSON {type(found).__name__} where an object is wanted")
        return found


def table(path: Path, dtype: type) -> np.ndarray:
    """[rows, columns] of a headerless csv.gz whose every cell is a `dtype`."""
    with reading(path):
        import pandas as pd  # half a second that no start has to wait for

        return pd.read_csv(path, compression="gzip", header=None, dtype=dtype).to_numpy()


def features_of(values: np.ndarray) -> np.ndarray:
    """`values` as [V, F] float32, one row after another in memory; not copied where they are that already.
    InputError where they are no numbers, or finite ones that float32 cannot hold."""
    if values.ndim != 2 or values.dtype.kind not in "iufb":
        raise InputError(
            f"features of type {values.dtype} and shape {values.shape} cannot be used; give numbers in "
            "[vertices, dimension]"
        )
    with np.errstate(over="ignore"):
        found = np.ascontiguousarray(values, dtype=np.float32)
    if values.dtype.kind == "f" and values.dtype.itemsize > 4:
        beyond = np.isinf(found) & np.isfinite(values)
        if beyond.any():
            vertex, column = np.unravel_index(int(np.argmax(beyond)), beyond.shape)
            raise InputError(
                f"feature {column} of vertex {vertex} is {values[vertex, column]:g}, more than float32 holds:"
                " scale the features"
            )
    return found


def sparse_features(parts: dict[str, np.ndarray], path: Path) -> Table:
    """[V, F] float32 from the compressed rows SPARSE of the file `path`. They stay compressed where the dense
    table would take LARGE bytes or more, and at least twice as many as they do."""
    values, indices, indptr, shape = (parts[name] for name in SPARSE)
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or shape.min() < 0:
        raise InputError(
            f"attr_shape={shape.tolist()} is not a matrix shape; give two numbers, rows and columns"
        )
    rows, columns = map(int, shape)
    if indptr.size != rows + 1:
        raise InputError(f"attr_indptr has {indptr.size} entries for {rows} rows; give one more than rows")
    dense = 4 * rows * columns
    affordable(path, 4 * columns)  # a model has a weight for each column, or more
    found = sparse_rows(indptr, indices, values, columns, "attr")
    if dense >= LARGE and 2 * found.nbytes <= dense:
        return found
    affordable(path, dense)
    return found.dense()


def check_square(shape: np.ndarray, vertices: int) -> None:
    """Raise InputError unless a stored adjacency matrix has the `shape` of a graph of so many vertices."""
    if not np.array_equal(shape, (vertices, vertices)):
        raise damaged(f"the adjacency has shape {shape.tolist()} for {vertices} vertices")


def single_labels(values: np.ndarray, unlabelled: bool = False) -> np.ndarray:
    """One class per vertex, [V] int32. Where vertices may be `unlabelled`, NaN becomes -1, which is "none";
    otherwise NaN and negative numbers raise InputError, as do numbers that are not whole."""
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or values.dtype.kind not in "iuf":
        raise InputError(
            f"labels of type {values.dtype} and shape {values.shape} cannot be used; give one whole number"
            " per vertex"
        )
    lacking = ~(values >= 0)  # NaN too
    if lacking.any() and not unlabelled:
        vertex = int(np.argmax(lacking))
        raise damaged(f"the label of vertex {vertex} is {values[vertex]}, which is no class")
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), -1, values)
        if np.any(values != np.floor(values)):
            raise InputError(
                f"label {values[values != np.floor(values)][0]} is not a whole number; give one class"
                " per vertex"
            )
    if len(values) and not -(2**31) <= values.min() <= values.max() < 2**31:
        raise InputError(
            f"labels from {values.min()} to {values.max()} are out of range; number the classes from 0"
        )
    return values.astype(np.int32)


def class_count(labels: np.ndarray, otherwise: str = FETCH) -> int:
    """The number of classes: one more than the largest of [V] single labels, or the columns of [V, C]
    multi-labels.

    Every class costs a column of the last layer, so an implausible count raises InputError: more than half of
    the classes have no vertex; single labels make more classes than there are labelled vertices; or only two
    classes have vertices and are not numbered 0 and 1 (the leading score of graphs with two is AUC). The
    message offers `otherwise` as a second remedy."""
    if labels.ndim == 2:
        count, used = labels.shape[1], int(np.count_nonzero(labels.any(axis=0)))
        if count > 2 * used:
            raise InputError(
                f"labels has {count} columns, one per class, but only {used} of these classes have a vertex: "
                f"leave out the empty columns, or {otherwise}"
            )
        return count
    known = labels[labels >= 0]
    count, used = int(known.max(initial=-1)) + 1, len(np.unique(known))
    if count > 2 * used or count > len(known) or (used == 2 and count > 2):
        raise InputError(
            f"the largest label is {count - 1} (of vertex {int(labels.argmax())}), which makes {count} "
            f"classes, but only {used} of them have a vertex: renumber the labels 0 to {used - 1}, or "
            f"{otherwise}"
        )
    return count


def mask_of(ids: np.ndarray, num_vertices: int, where: str) -> np.ndarray:
    """[V] bool, true at the vertices listed."""
    ids = np.asarray(ids)
    if ids.size == 0:
        return np.zeros(num_vertices, bool)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise InputError(
            f"{where} of type {ids.dtype} and shape {ids.shape} is not a list of vertices;"
            " give vertex numbers"
        )
    if not 0 <= ids.min() <= ids.max() < num_vertices:
        bad = ids[(ids < 0) | (ids >= num_vertices)][0]
        raise InputError(f"{where}: {bad} is not a vertex; vertices are 0 to {num_vertices - 1}")
    mask = np.zeros(num_vertices, bool)
    mask[ids] = True
    return mask


@contextlib.contextmanager
def _archive(path: Path, mend: str = FETCH) -> Iterator[Any]:
    with reading(path):
        _check_kind(path, ARCHIVE, mend)
        with np.load(path, allow_pickle=False) as opened:
            members = opened.zip.namelist()
            affordable(path, sum(member.file_size for member in opened.zip.infolist()))
            if members and not any(member.endswith(".npy") for member in members):
                raise InputError(
                    "this is a zip archive without numpy arrays (torch.save writes such), not an npz "
                    f"archive: {mend}"
                )
            yield opened


def _check_kind(path: Path, wanted: str, mend: str) -> None:
    """Raise InputError where the file's first bytes are not those of `wanted`, ARCHIVE or ARRAY."""
    with path.open("rb") as file:
        head = file.read(1024)
    kind = next((kind for signature, kind in SIGNATURES if head.startswith(signature)), None)
    if kind == wanted:
        return
    if not head:
        kind = "empty"
    elif kind is None:
        text = "text (a CSV file, a list of edges or the like)"
        kind = text if _is_text(head) else "in a format not known here"
    name = "an npz archive" if wanted == ARCHIVE else "an npy array"
    raise InputError(f"this is {kind}, not {name}: {mend}")


def _is_text(head: bytes) -> bool:
    try:
        # Not final: the 1024 bytes may end inside a character.
        text = codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character.isspace() for character in text)


@contextlib.contextmanager
def _numbers_only(what: str) -> Iterator[None]:
    """Replace numpy's error for an array of Python objects, which advises to load the objects after all."""
    try:
        yield
    except ValueError as error:
        if "allow_pickle" in str(error):
            reason = "holds Python objects, which are never loaded"
            raise InputError(f"{what} {reason}: store it as numbers") from None
        raise
