"""Truncated, corrupt and hostile raw files: each gets one sentence that names the file; nothing in it is run,
and no gigabytes are asked for.
"""

import json
import math
import pickle
import resource
import zipfile
from pathlib import Path

import numpy as np
import pytest

from harness.base.errors import InputError, typed
from harness.data import npz, real
from harness.data.sources import Source
from tests.raw_files import Hostile, parts_of, refused, small, write

FORMATS = [
    (name, file)
    for name in ("reddit", "yelp", "coauthor-cs", "cora", "tolokers", "ogbn-arxiv", "ogbn-papers100m")
    for file in real.SETS[name].files
]


@pytest.mark.parametrize(("name", "file"), FORMATS)
@pytest.mark.parametrize("damage", ["half", "empty", "noise", "middle"])
def test_a_damaged_file_is_named(name, file, damage, tmp_path):
    path = write(name, tmp_path, small()) / file
    content = path.read_bytes()
    middle = bytearray(content)
    middle[len(content) // 3 : 2 * len(content) // 3] = b"\xff" * (2 * len(content) // 3 - len(content) // 3)
    path.write_bytes(
        {
            "half": content[: len(content) // 2],
            "empty": b"",
            "noise": b"\x93\xfe\x00 not this" * 9,
            "middle": bytes(middle),
        }[damage]
    )
    # Nothing but its header protects an npy: wrong numbers in it show as a wrong graph, under the graph's
    # name.
    named = "yelp: features" if (damage, path.name) == ("middle", "feats.npy") else path.name
    refused(name, tmp_path, named)


@pytest.mark.parametrize("part", ["tx", "allx", "y", "ty", "ally", "graph"])
def test_a_hostile_pickle_runs_nothing(part, tmp_path):
    folder, trace = write("cora", tmp_path, small()), tmp_path / "trace"
    calls = (Path.touch, trace), (eval, f"open({str(trace)!r}, 'w')"), (getattr, "", "join"), (np.load, "x")
    for number, call in enumerate(calls):
        content = pickle.dumps(Hostile(*call), protocol=2 + number % 2)
        (folder / "raw" / f"ind.cora.{part}").write_bytes(content)
        refused("cora", tmp_path, f"ind.cora.{part}.* which no Planetoid file needs")
    assert not trace.exists()


@pytest.mark.parametrize(
    ("part", "content", "says"),
    [
        ("graph", [1, 2, 3], "holds no lists of neighbours"),
        ("graph", {0: [99]}, "endpoint 99 is not a vertex"),
        ("graph", {0: [1.5]}, "'1.5' is no vertex number"),
        ("graph", {True: [1]}, "'True' is no vertex number"),
        ("graph", np.array(["a"]), "array type 'U1' is not admitted"),
        ("ty", np.array([[1, 1, 0]] * 10), r"row 0 of the labels is \[1, 1, 0\]"),
        ("ally", np.array([[0, 1, 0]] * 29 + [[0, -1, 0]]), r"row 29 of the labels is \[0, -1, 0\]"),
        ("allx", np.zeros(3), "holds no matrix"),
    ],
)
def test_a_pickle_of_the_wrong_thing_is_named(part, content, says, tmp_path):
    path = write("cora", tmp_path, small()) / f"raw/ind.cora.{part}"
    path.write_bytes(pickle.dumps(content, protocol=2))
    refused("cora", tmp_path, f"ind.cora.{part}.*{says}")


def test_names_out_of_a_damaged_file_stay_on_one_short_line(tmp_path):
    path = write("reddit", tmp_path, small()) / "raw/reddit_graph.npz"
    names = ["a\nb\x1b" * 40, *(f"x{number}" for number in range(30))]
    np.savez(path, **{name: np.ones(1) for name in names})
    said = refused("reddit", tmp_path, 'array "row" is missing')
    assert "a\\nb\\x1b" in said and "and 11 more" in said and len(said) < 500


def test_an_edge_of_a_vertex_that_has_no_row_is_named(tmp_path):
    np.savez(write("reddit", tmp_path, small()) / "raw/reddit_graph.npz", row=[0], col=[40])
    refused("reddit", tmp_path, "reddit_graph.npz.*endpoint 40 is not a vertex")


def test_wild_test_ids_are_refused_before_memory_is_asked_for(tmp_path):
    folder = write("cora", tmp_path, small())
    (folder / "raw/ind.cora.test.index").write_text("\n".join(str(v) for v in [*range(30, 39), 10**12]))
    refused("cora", tmp_path, "test.index.*far beyond")


@pytest.mark.parametrize(
    ("name", "file", "change", "says"),
    [
        ("reddit", "reddit_data.npz", {"node_types": None}, 'array "node_types" is missing'),
        ("reddit", "reddit_data.npz", {"node_types": [1]}, "node_types has shape"),
        ("ogbn-papers100m", "data.npz", {"edge_index": np.zeros((3, 4), int)}, r"\[2, edges\] is wanted"),
        *(
            ("coauthor-cs", "ms_academic_cs.npz", *row)
            for row in (
                ({"adj_indptr": np.zeros(42, int)}, r"adj_indptr has shape \(42,\) where \(41,\)"),
                ({"adj_shape": [40, 41]}, r"the adjacency has shape \[40, 41\] for 40 vertices"),
                ({"labels": np.eye(40)}, r"labels has shape \(40, 40\) where \(40,\)"),
                ({"adj_indices": np.zeros((3, 2), int)}, "indices has shape"),
            )
        ),
        (
            "tolokers",
            "tolokers.npz",
            {"edges": np.zeros((2, 9), int)},
            r"edges has shape \(2, 9\) where \(2, 2\)",
        ),
        ("tolokers", "tolokers.npz", {"edges": [[0, 40]]}, "edges name vertex 40"),
        ("tolokers", "tolokers.npz", {"val_masks": np.ones(40, bool)}, r"\(40,\) where \(2, 40\)"),
        (
            "flickr",
            "adj_full.npz",
            {"shape": [40, 41]},
            r"the adjacency has shape \[40, 41\] for 40 vertices",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_named_and_to_be_fetched_again(name, file, change, says, tmp_path):
    path = write(name, tmp_path, small()) / "raw" / file
    with np.load(path) as stored:
        parts = {key: stored[key] for key in stored.files if key != "class_names"}
    np.savez(path, **{key: value for key, value in {**parts, **change}.items() if value is not None})
    assert refused(name, tmp_path, f"{file}.*{says}").endswith("fetch the file again")


def classes(first: dict) -> str:
    """A class map of 40 vertices that begins with these."""
    others = {str(vertex): 0 for vertex in range(40) if str(vertex) not in map(str, first)}
    return json.dumps(first | others)


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("class_map.json", "[1, 2]", "JSON list where an object is wanted"),
        ("class_map.json", '{"99": 1}', "99 is not a vertex"),
        ("class_map.json", '{"0": 1}', "class_map lacks vertex 1"),
        ("class_map.json", classes({"07": 1, "7": 1}), "lists a vertex twice"),
        ("class_map.json", classes({"7": -1}), "label of vertex 7 is -1, which is no class"),
        ("class_map.json", classes({"7": math.nan}), "label of vertex 7 is nan, which is no class"),
        ("class_map.json", classes(dict.fromkeys(range(40), "x")), "cannot be used"),
        ("class_map.json", classes({vertex: [0, 2] for vertex in range(40)}), "lists of 0 and 1"),
        ("class_map.json", "[" * 100000, "cannot be read"),
        ("role.json", '{"tr": [0], "va": [1]}', "role te is missing"),
        ("role.json", '{"tr": [0], "va": [1], "te": [40]}', "role te: 40 is not a vertex"),
        ("role.json", '{"tr": [0.5], "va": [1], "te": [2]}', "is not a list of vertices"),
    ],
)
def test_json_that_does_not_fit_is_named(file, content, says, tmp_path):
    folder = write("flickr", tmp_path, small())
    (folder / "raw" / file).write_text(content)
    assert file in refused("flickr", tmp_path, says)


# -- made to do harm: refused before memory is asked for --


def sharing(levels: int) -> bytes:
    """A list in the place of a neighbour, which holds another one twice, and so on."""
    made: list = []
    for _ in range(levels):
        made = [made, made]
    return pickle.dumps({0: [made]}, protocol=2)


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
    # To write a list that holds the one before twice, or to hash such a tuple as a key, takes 2^40 steps.
    "lists": (sharing(40), "refers .* more than 16 times"),
    "keys": (b"\x80\x02})" + b"q\x01h\x01\x86" * 40 + b"K\x00s.", "refers .* more than 16 times"),
    "copies": (b"\x80\x02})" + b"2\x86" * 40 + b"K\x00s.", "refers .* more than 16 times"),
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
    path.write_bytes(pickle.dumps(dict.fromkeys(range(10), shared), protocol=2))
    refused("cora", tmp_path, r"20000 neighbours are more than the bytes of the file")


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


@pytest.mark.parametrize("name", ["..", ".", ""])
def test_a_name_that_would_leave_the_folder_of_results_is_refused(name):
    with pytest.raises(InputError, match=r"dataset.name=.* names no graph"):
        typed(Source, {"name": name, "source": "npz", "path": "graph.npz"}, "dataset")
