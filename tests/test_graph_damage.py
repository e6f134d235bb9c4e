"""Truncated, corrupt and hostile raw files: each gets one sentence that names the file, and nothing in it is
run.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from harness.data import real
from tests.raw_files import Hostile, refused, small, write

FORMATS = [
    (name, file)
    for name in ("reddit", "yelp", "coauthor-cs", "cora", "tolokers", "ogbn-arxiv", "ogbn-papers100m")
    for file in real.DATASETS[name].files
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


def test_wild_test_ids_are_refused_before_memory_is_asked_for(tmp_path):
    folder = write("cora", tmp_path, small())
    (folder / "raw/ind.cora.test.index").write_text("\n".join(str(v) for v in [*range(30, 39), 10**12]))
    refused("cora", tmp_path, "test.index.*far beyond")


DATA = {"feature": np.ones((40, 2)), "label": np.zeros(40)}
TOLOKERS = {"node_features": np.ones((2, 1)), "node_labels": [0, 1], "edges": [[0, 1, 1]]}
TOLOKERS |= {f"{split}_masks": [[True]] for split in ("train", "val", "test")}
PAPERS = {"edge_index": np.zeros((3, 4), int), "node_feat": np.ones((5, 2))}


@pytest.mark.parametrize(
    ("name", "file", "change", "says"),
    [
        ("reddit", "reddit_graph.npz", {"row": [0], "col": [40]}, "endpoint 40 is not a vertex"),
        ("reddit", "reddit_data.npz", DATA, 'array "node_types" is missing'),
        ("reddit", "reddit_data.npz", {**DATA, "node_types": [1]}, "node_types has shape"),
        ("tolokers", "tolokers.npz", TOLOKERS, r"\[edges, 2\] is wanted"),
        ("ogbn-papers100m", "node-label.npz", {"node_label": np.array([[None]])}, "holds Python objects"),
        (
            "ogbn-papers100m",
            "node-label.npz",
            {"node_label": np.full((43, 1), 0.5)},
            "label 0.5 is not a",
        ),
        ("ogbn-papers100m", "data.npz", PAPERS, r"\[2, edges\] is wanted"),
    ],
)
def test_arrays_that_do_not_fit_are_named(name, file, change, says, tmp_path):
    folder = write(name, tmp_path, small())
    np.savez(folder / "raw" / file, **change)
    assert file in refused(name, tmp_path, says)


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("class_map.json", "[1, 2]", "JSON list where an object is wanted"),
        ("class_map.json", '{"99": 1}', "99 is not a vertex"),
        ("class_map.json", '{"0": 1}', "class_map lacks vertex 1"),
        ("class_map.json", json.dumps({**dict.fromkeys(range(40), 0), "07": 1}), "lists a vertex twice"),
        ("class_map.json", '{"7": -1}', "label of vertex .* is -1, which is no class"),
        ("class_map.json", '{"7": NaN}', "label of vertex .* is nan, which is no class"),
        ("class_map.json", '{"0": "x", "1": "y"}', "cannot be used"),
        ("class_map.json", '{"0": [0, 2]}', "lists of 0 and 1"),
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
