"""Raw files made to do harm, or that mean something else than they seem to: each is refused in one sentence,
before memory is asked for.
"""

from __future__ import annotations

import pickle
import resource
import zipfile

import numpy as np
import pytest

from harness.base.errors import InputError, typed
from harness.data import npz
from harness.data.config import DatasetConfig
from harness.data.sources import load
from tests.raw_files import parts_of, refused, small, write

CALL = b"ccollections\ndefaultdict\n(tR"
BOMBS = {
    # 0x0fffffff places of a memo, 2 GB
    "memo": (b"]r\xff\xff\xff\x0f.", "memo"),
    "length": (b"\x80\x04\x8e" + (1 << 40).to_bytes(8, "little") + b"x.", "bytes8"),
    # Python's own defaultdict, as many inside each other, overruns the stack when it is freed.
    "nesting": (b"".join([CALL, b"K\x00"]) * 100_000 + b"N" + b"s" * 100_000 + b".", "more than 100 calls"),
    "calls": (CALL * 101 + b".", "more than 100 calls"),
    # To hash a key of as many tuples inside each other overruns the stack.
    "tuples": (b"\x80\x02}(" + b")" + b"\x85" * 400_000 + b"]u.", "more than 1000 tuples"),
    "opcode": (b"(cos\nsystem\no.", "opcode OBJ"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_pickle_that_asks_for_gigabytes_is_refused_before_it_gets_them(name, tmp_path):
    content, says = BOMBS[name]
    path = write("cora", tmp_path, small()) / "raw/ind.cora.graph"
    path.write_bytes(content)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused("cora", tmp_path, f"ind.cora.graph.*{says}")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


def test_a_list_that_is_the_neighbours_of_every_vertex_is_refused(tmp_path):
    path = write("cora", tmp_path, small()) / "raw/ind.cora.graph"
    shared = list(range(40)) * 50
    path.write_bytes(pickle.dumps(dict.fromkeys(range(40), shared), protocol=2))
    refused("cora", tmp_path, r"80000 neighbours are more than the bytes of the file")


def test_sparse_rows_that_are_terabytes_when_dense_are_refused(tmp_path):
    path, parts = tmp_path / "graph.npz", parts_of(small(20))
    del parts["features"]
    empty = np.zeros(0, np.int64)
    indptr = np.zeros(21, np.int64)
    np.savez(path, **parts, attr_data=empty, attr_indices=empty, attr_indptr=indptr, attr_shape=[20, 1 << 33])
    with pytest.raises(InputError, match=r"graph.npz.* would take 687 GB of memory"):
        npz.read(path, None)


def test_an_archive_of_a_few_kilobytes_that_unpacks_to_gigabytes_is_refused(tmp_path):
    path, whole = tmp_path / "graph.npz", tmp_path / "whole.npz"
    np.savez(whole, **parts_of(small(20)))
    header = b"{'descr': '|b1', 'fortran_order': False, 'shape': (100000000,), }".ljust(117) + b"\n"
    array = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    with zipfile.ZipFile(whole) as archive, zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as packed:
        for member in archive.namelist():
            packed.writestr(member, archive.read(member))
        with packed.open("train.npy", "w") as file:
            file.write(array + b"\0" * 100_000_000)
    assert path.stat().st_size < 5000
    with pytest.raises(InputError, match=r"graph.npz.* would take 0.1 GB of memory"):
        npz.read(path, None)


def test_more_classes_than_weights_could_be_made_for_are_refused(tmp_path):
    path = tmp_path / "graph.npz"
    np.savez(path, **parts_of(small(20)), num_classes=np.array(1 << 62))
    config = typed(DatasetConfig, {"name": "npz", "source": "npz", "path": str(path)}, "dataset")
    with pytest.raises(InputError, match="num_classes=4611686018427387904 for 20 vertices"):
        load(config, tmp_path, seed=1)


@pytest.mark.parametrize("name", ["..", ".", ""])
def test_a_name_that_would_leave_the_folder_of_results_is_refused(name):
    with pytest.raises(InputError, match=r"dataset.name=.* names no graph"):
        typed(DatasetConfig, {"name": name, "source": "npz", "path": "graph.npz"}, "dataset")
