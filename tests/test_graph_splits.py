"""Splits drawn by seed, validation of a Graph, and the dataset block."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base.errors import InputError, typed
from harness.data import csr, splits
from harness.data.graph import Graph, validate
from harness.data.partition.shard import Csr
from harness.data.sources import Source


@given(st.lists(st.integers(-1, 3), min_size=5, max_size=200), st.integers(0, 9))
def test_random_split_is_a_60_20_20_partition_of_the_labelled_vertices(labels, seed):
    labels = np.array(labels, np.int32)
    labelled = int((labels >= 0).sum())
    if labelled < 5:
        with pytest.raises(InputError, match="needs 5 labelled vertices"):
            splits.random(labels, seed)
        return
    masks = np.stack(splits.random(labels, seed))
    np.testing.assert_array_equal(masks.sum(axis=0), labels >= 0)
    assert masks[0].sum() == int(0.6 * labelled) and masks[1].sum() == int(0.2 * labelled)
    np.testing.assert_array_equal(masks, splits.random(labels, seed))
    of_many = np.zeros((len(labels), 3), np.uint8)
    assert np.stack(splits.random(of_many, seed)).any(axis=0).all(), "each vertex has its label sets"


@given(
    st.lists(st.integers(51, 90), min_size=2, max_size=4),
    st.integers(0, 9),
    st.integers(0, 20),
    st.integers(1, 19),
)
def test_low_label_split_takes_20_and_30_of_each_class_or_fewer_of_the_20(sizes, seed, unlabelled, few):
    labels = (
        np.random.default_rng(seed)
        .permutation(np.r_[np.repeat(np.arange(len(sizes)), sizes), np.full(unlabelled, -1)])
        .astype(np.int32)
    )
    train, val, test = splits.low_label(labels, len(sizes), seed)
    assert np.bincount(labels[train]).tolist() == [20] * len(sizes)
    assert np.bincount(labels[val]).tolist() == [30] * len(sizes)
    np.testing.assert_array_equal(train.astype(int) + val + test, labels >= 0)
    fewer = splits.low_label(labels, len(sizes), seed, few)
    assert np.bincount(labels[fewer[0]]).tolist() == [few] * len(sizes)
    assert np.bincount(labels[fewer[1]]).tolist() == [30] * len(sizes)
    assert not np.any(fewer[0] & ~train), "the others are added to them"
    np.testing.assert_array_equal(train, splits.low_label(labels, len(sizes), seed)[0])
    assert not np.array_equal(train, splits.low_label(labels, len(sizes), seed + 1)[0])


def test_low_label_refuses_small_classes_and_multi_label_graphs_and_skips_empty_classes():
    labels = np.r_[np.zeros(60), np.full(50, 2)].astype(np.int32)
    mend = r"class 2 has 50: give \+dataset.labels_per_class=19 or fewer, or dataset.split=random"
    with pytest.raises(InputError, match=mend):
        splits.low_label(labels, 3, 0)
    assert splits.low_label(labels, 3, 0, 19)[0].sum() == 38
    with pytest.raises(InputError, match=r"class 1 has 33: give \+dataset.labels_per_class=2 or fewer"):
        splits.low_label(np.repeat([0, 1, 2], [45, 33, 60]), 3, 0)
    with pytest.raises(InputError, match="class 2 has 30: use dataset.split=random"):
        splits.low_label(labels[:90], 3, 0, 1)
    assert splits.low_label(labels[:60], 3, 0)[0].sum() == 20
    with pytest.raises(InputError, match="multi-label"):
        splits.low_label(np.zeros((100, 3), np.uint8), 3, 0)


# -- validation --


def graph(**changes) -> Graph:
    edges = csr.from_edges(np.array([0, 1, 2]), np.array([1, 2, 3]), 4, symmetrise=True)
    ids, features = np.arange(4), np.ones((4, 2), np.float32)
    labels, splits = (ids % 2).astype(np.int32), (ids < 2, ids == 2, ids == 3)
    whole = Graph("g", *edges[:2], features, labels, 2, *splits, True)
    return whole.replace(**changes)


def test_a_sound_graph_passes_as_it_is():
    sound = graph()
    assert validate(sound) is sound
    validate(graph(labels=np.array([[1, 1], [0, 0], [1, 0], [0, 1]], np.uint8)))


NAN = np.ones((4, 2), np.float32)
NAN[2, 1] = np.nan


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"indptr": np.array([0, 1, 3, 5, 6], np.uint64)}, "g: indptr holds uint64; convert it to int32"),
        ({"indices": np.array([1, 0, 2, 1, 3, 2], ">i4")}, "indices holds >i4; convert it to int32"),
        ({"name": 3}, "name=3 is a int; give a str"),
        ({"symmetric": 1}, "symmetric=1 is a int; give a bool"),
        ({"num_classes": 2.0}, "num_classes=2.0 is a float; give a int"),
        (
            {"features": Csr([0, 1, 2, 3, 4], np.zeros(4, np.int32), 2)},
            "a Csr of other things than arrays; build it with harness.data.csr.sparse_rows",
        ),
        ({"indices": [1, 0, 2, 1, 3, 2]}, r"indices is a list of shape \(6,\); give a numpy"),
        ({"val": np.arange(4)[:, None] == 2}, r"val is a ndarray of shape \(4, 1\)"),
        ({"features": [[1.0]] * 4}, "features is a list; give a numpy array, or a Csr"),
        ({"indptr": np.array([0], np.int32)}, "g: the graph has no vertices"),
        ({"indptr": np.array([0, 1, 3, 5, 7], np.int32)}, "indptr must rise from 0 to the number of edges"),
        ({"indices": np.array([1, 0, 2, 1, 3, 4], np.int32)}, "endpoint 4 is not a vertex"),
        ({"indices": np.array([1, 2, 0, 1, 3, 2], np.int32)}, "out of order or repeated"),
        ({"indices": np.array([1, 2, 2, 1, 3, 2], np.int32)}, "out of order or repeated"),
        ({"features": np.ones((3, 2), np.float32)}, "features has 3 rows for 4 vertices"),
        ({"features": np.ones((4, 0), np.float32)}, r"features has shape \(4, 0\)"),
        ({"features": np.ones((4, 2))}, "features holds float64; convert it to float32"),
        ({"features": NAN}, "features of vertex 2 hold NaN or infinity"),
        ({"num_classes": 1}, "num_classes=1; classification needs 2 or more"),
        ({"labels": np.array([0, 1, 2, 0], np.int32)}, "label 2 is out of range; classes are 0 to 1"),
        ({"labels": np.array([0, 1, -2, 0], np.int32)}, "label -2 is out of range"),
        ({"labels": np.array([0, 1, -1, 0], np.int32)}, "vertex 2 is in a split but has no label"),
        ({"labels": np.full((4, 2), 2, np.uint8)}, "multi-label labels must be 0 or 1"),
        ({"val": np.arange(4) < 2}, "vertex 0 is in two of train, val and test"),
        ({"train": np.zeros(4, bool)}, "no vertex is in train"),
        ({"test": np.array([0, 0, 0, 1])}, "test holds int64; convert it to bool"),
    ],
)
def test_validation_names_the_first_thing_wrong(changes, says):
    with pytest.raises(InputError, match=says):
        validate(graph(**changes))


# -- the dataset block --


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"name": "redit"}, 'dataset.name="redit" is not known; did you mean "reddit"'),
        ({"name": "cora", "source": "reel"}, 'dataset.source="reel" is not known; did you mean "real"'),
        ({"name": "mine", "source": "npz"}, "dataset.path is not given: add dataset.path="),
        ({"name": "cora", "splt": "own"}, 'dataset.splt is not a key of Source; did you mean "split"'),
    ],
)
def test_the_dataset_block_refuses_bad_values_by_name(values, says):
    with pytest.raises(InputError, match=says):
        typed(Source, values, "dataset")


def test_keys_that_a_source_does_not_read_are_named():
    given = {"scale": 0.5, "generator_seed": 3, "mask": 1, "split": "random", "labels_per_class": 5}
    said = Source("cora", path="x.npz", **given).ignored()
    assert [sentence.split("=")[0] for sentence in said] == [
        "dataset.path",
        "dataset.scale",
        "dataset.generator_seed",
        "dataset.mask",
        "dataset.labels_per_class",
    ]
    assert Source("reddit", source="twin", symmetrise=True).ignored()
    for read in (
        Source("cora", split="low_label", labels_per_class=5),
        Source("cora", symmetrise=False, mask=0),
        Source("reddit", source="twin", scale=0.5),
    ):
        assert not read.ignored()
