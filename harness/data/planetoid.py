"""Reader of Planetoid's files (Yang et al. 2016): Python-2 pickles of scipy and numpy objects, read, not run.

The unpickler maps the few names these files need to plain holders defined here and refuses every other one,
so that neither numpy's nor scipy's own unpickling code sees the bytes. Before the unpickler runs, the opcodes
are read without being executed, since nine bytes can make an unpickler allocate gigabytes."""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from harness.base.errors import InputError
from harness.data.csr import from_edges, sparse_rows
from harness.data.raw import Raw, affordable, class_count, damaged, mask_of, reading
from harness.data.real_set import RealSet

PARTS = ("tx", "allx", "y", "ty", "ally", "graph", "test.index")
NUM_VALIDATION = 500  # the vertices after the training ones


def read_planetoid(*paths: Path, symmetrise: bool) -> Raw:
    """Read Planetoid's files, given in the order of PARTS; the eighth, `x`, is not needed, since it repeats
    the first rows of `allx`.

    Vertices 0, 1, ... are the rows of `allx`: the first ones train, as many as `y` has rows, and the next 500
    validate. Row i of `tx` is vertex test.index[i], a test vertex. Ids that no file describes (15 of
    CiteSeer's) get features of 0, no label and no split. Raises InputError where the files do not fit each
    other or hold something else."""
    path = dict(zip(PARTS, paths, strict=True))
    features = {part: _dense(path[part]) for part in ("tx", "allx")}
    labels = {part: _classes(path[part]) for part in ("y", "ty", "ally")}
    with reading(path["test.index"]):
        test = np.array(path["test.index"].read_text("ascii").split(), dtype=np.int64)
    known, num_train = len(features["allx"]), len(labels["y"])
    num_vertices = int(max(known, test.max(initial=-1) + 1))
    with reading(path["test.index"]):
        if (
            len(test) != len(features["tx"])
            or len(np.unique(test)) != len(test)
            or test.min(initial=known) < known
        ):
            raise damaged(
                f"{len(test)} ids do not name the {len(features['tx'])} rows of tx, all after the {known} of "
                "allx"
            )
        # Every id costs a dense row, so a wild one would ask for all memory.
        if num_vertices > 2 * (known + len(test)):
            raise damaged(f"id {num_vertices - 1} is far beyond the {known + len(test)} described vertices")
        test_mask = mask_of(test, num_vertices, "test.index")
    with reading(path["ally"]):
        if len(labels["ally"]) != known or num_train > known or len(labels["ty"]) != len(test):
            raise damaged(
                f"{len(labels['ally'])} and {len(labels['ty'])} labels for {known} and {len(test)} vertices"
            )
    with reading(path["tx"]):
        if features["tx"].shape[1] != features["allx"].shape[1]:
            raise damaged(f"tx has {features['tx'].shape[1]} columns and allx {features['allx'].shape[1]}")
    with reading(path["allx"]):
        affordable(path["allx"], 4 * num_vertices * features["allx"].shape[1])
    all_features = np.zeros((num_vertices, features["allx"].shape[1]), np.float32)
    all_features[:known], all_features[test] = features["allx"], features["tx"]
    all_labels = np.full(num_vertices, -1, np.int32)
    all_labels[:known], all_labels[test] = labels["ally"], labels["ty"]
    with reading(path["ally"]):
        num_classes = class_count(all_labels)
    with reading(path["graph"]):
        src, dst = _pairs(_unpickle(path["graph"]), path["graph"])
        edges = from_edges(src, dst, num_vertices, symmetrise=symmetrise, self_loops=False, where="graph")
    ids = np.arange(num_vertices)
    train_mask = ids < num_train
    val_mask = (ids >= num_train) & (ids < min(num_train + NUM_VALIDATION, known))
    masks = (train_mask[None], val_mask[None], test_mask[None])
    return Raw(edges, all_features, all_labels, num_classes, masks)


def _dense(path: Path) -> np.ndarray:
    """[rows, F] float32 of a pickled csr_matrix or array."""
    with reading(path):
        found = _unpickle(path)
        if isinstance(found, _SparseRows):
            rows, columns = found._shape
            if len(found.indptr.value) != rows + 1:
                raise damaged(f"{len(found.indptr.value)} row pointers for {rows} rows")
            affordable(path, 4 * rows * columns)
            return sparse_rows(
                found.indptr.value, found.indices.value, found.data.value, columns, "csr_matrix"
            ).dense()
        if isinstance(found, _Array) and found.value.ndim == 2:
            return found.value.astype(np.float32)
        raise damaged("this holds no matrix")


def _classes(path: Path) -> np.ndarray:
    """[rows] int32: the column of the 1 in each row of a pickled one-hot matrix, or -1 for a row of zeros.
    Raises InputError where a row has two ones, or a number that is neither 0 nor 1."""
    with reading(path):
        found = _unpickle(path)
        if not isinstance(found, _Array) or found.value.ndim != 2 or not found.value.shape[1]:
            raise damaged("this holds no one-hot labels")
        ones = found.value == 1
        odd = (~ones & (found.value != 0)).any(axis=1) | (ones.sum(axis=1) > 1)
        if odd.any():
            row = int(np.argmax(odd))
            raise damaged(f"row {row} of the labels is {found.value[row].tolist()}, not one 1 among zeros")
        return np.where(ones.any(axis=1), ones.argmax(axis=1), -1).astype(np.int32)


def _pairs(graph: Any, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The edges of a pickled {vertex: [neighbours]}, read from `path`."""
    if not isinstance(graph, dict) or not all(isinstance(near, list) for near in graph.values()):
        raise damaged("this holds no lists of neighbours")
    degrees = np.fromiter(map(len, graph.values()), np.int64, len(graph))
    # A pickle may hold one list once and refer to it as the neighbours of every vertex.
    if degrees.sum() > path.stat().st_size:
        raise damaged(f"{degrees.sum()} neighbours are more than the bytes of the file")
    for end in chain(graph, chain.from_iterable(graph.values())):
        if type(end) is not int:  # numpy would take 1.5 and "1" for 1
            raise damaged(f"{str(end)[:40]!r} is no vertex number")
    src = np.repeat(np.fromiter(graph, np.int64, len(graph)), degrees)
    return src, np.fromiter(chain.from_iterable(graph.values()), np.int64, len(src))


# -- the unpickler --


class _SparseRows:
    """Stands in for scipy's csr_matrix: its state becomes attributes (data, indices, indptr, _shape)."""

    data: _Array
    indices: _Array
    indptr: _Array
    _shape: tuple[int, int]


class _Dtype:
    """Stands in for numpy.dtype, for fixed-width numbers only."""

    def __init__(self, name: str, *_: Any) -> None:
        if name not in ("b1", "i1", "u1", "i2", "i4", "i8", "f4", "f8"):
            raise pickle.UnpicklingError(f"array type {name!r} is not admitted")
        self.dtype = np.dtype(name)

    def __setstate__(self, state: tuple) -> None:
        self.dtype = self.dtype.newbyteorder(">" if state[1] == ">" else "<")


class _Array:
    """Stands in for numpy.ndarray: (version, shape, dtype, is_fortran, bytes) becomes `value`."""

    def __setstate__(self, state: tuple) -> None:
        _, shape, dtype, fortran, content = state
        content = content.encode("latin1") if isinstance(content, str) else content
        flat = np.frombuffer(content, dtype.dtype)
        if math.prod(shape) != len(flat) or any(size < 0 for size in shape):
            raise pickle.UnpicklingError(f"an array of shape {shape} with {len(flat)} entries")
        self.value = flat.reshape(shape, order="F" if fortran else "C")


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _dictionary(*_: Any) -> dict[Any, Any]:
    """Stands in for collections.defaultdict: freeing a million of those, nested in each other, crashes."""
    return {}


def _list(*_: Any) -> list[Any]:
    return []


def _encode(text: str, encoding: str) -> bytes:
    """Stands in for _codecs.encode, which Python 3 calls for bytes that it has written in protocol 2."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"encoding {encoding!r} is not admitted")
    return text.encode("latin1")


class _Unpickler(pickle.Unpickler):
    ADMITTED: ClassVar[dict] = {
        ("scipy.sparse.csr", "csr_matrix"): _SparseRows,
        ("scipy.sparse._csr", "csr_matrix"): _SparseRows,
        ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy", "ndarray"): _Array,
        ("numpy", "dtype"): _Dtype,
        ("collections", "defaultdict"): _dictionary,
        ("builtins", "list"): _list,
        ("__builtin__", "list"): _list,
        ("_codecs", "encode"): _encode,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ADMITTED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no Planetoid file needs")
        return self.ADMITTED[module, name]


def _unpickle(path: Path) -> Any:
    content = path.read_bytes()
    _check_opcodes(content)
    return _Unpickler(io.BytesIO(content), fix_imports=False, encoding="latin1").load()


OPCODES = {
    *("PROTO", "STOP", "FRAME", "MARK", "POP", "POP_MARK", "DUP"),
    *("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GET", "BINGET", "LONG_BINGET"),
    *("NONE", "NEWTRUE", "NEWFALSE", "FLOAT", "BINFLOAT"),
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("EMPTY_LIST", "LIST", "APPEND", "APPENDS", "EMPTY_DICT", "DICT", "SETITEM", "SETITEMS"),
    *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
    *("GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "NEWOBJ"),
}
MEMO = ("PUT", "BINPUT", "LONG_BINPUT")
REFERRING = ("GET", "BINGET", "LONG_BINGET", "DUP")
CALLS = 100  # calls that one file may make; a sparse matrix makes 7
# Tuples that one file may make: a hundred thousand, nested in each other and used as a key, overrun the stack
# when they are hashed.
TUPLES = 1000
# References to an earlier object that one file may make; a sparse matrix makes 6. Of n tuples or lists that
# each hold the one before twice, a hash or a text takes 2^n steps.
REFERENCES = 16


def _check_opcodes(content: bytes) -> None:
    """Raise an error where executing the opcodes could take far more memory or time than the file's own
    size: a far place in the memo, for which all places before it are allocated; more than CALLS calls, each
    of which may copy what the file holds once; more than TUPLES tuples or REFERENCES references; any opcode
    that is not in OPCODES. A length beyond the end of the file makes `genops` itself raise ValueError."""
    calls = tuples = references = 0
    for number, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        if opcode.name not in OPCODES:
            raise InputError(f"its opcode {opcode.name} is one that no Planetoid file needs")
        if isinstance(argument, int) and opcode.name in MEMO and argument > number:
            raise damaged(f"it keeps place {argument} of a memo that has {number}")
        calls += opcode.name in ("REDUCE", "BUILD", "NEWOBJ")
        if calls > CALLS:
            raise damaged(f"it makes more than {CALLS} calls")
        tuples += opcode.name in ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3")
        if tuples > TUPLES:
            raise damaged(f"it makes more than {TUPLES} tuples")
        references += opcode.name in REFERRING
        if references > REFERENCES:
            raise damaged(f"it refers to an earlier object more than {REFERENCES} times")


def planetoid_set(name: str, **known: Any) -> RealSet:
    """A data set of Planetoid. `name` is its folder; `known` are further fields of `RealSet`."""
    return RealSet(
        'Yang, Cohen, Salakhutdinov, "Revisiting Semi-Supervised Learning with Graph Embeddings", ICML 2016.',
        folders=(name, f"Planetoid/{name}"),
        files=tuple(f"raw/ind.{name.lower()}.{part}" for part in PARTS),
        read=read_planetoid,
        url="https://github.com/kimiyoung/planetoid/raw/master/data/",
        licence="MIT",
        **known,
    )
