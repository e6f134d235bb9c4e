"""Bring your own graph: the documented npz, every way to get it wrong; normalisation and the fingerprint of a
graph.
"""

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.data.sources import Source
from tests.raw_files import compressed, dense, parts_of, small, write_heterophilous

NOWHERE = Path("nowhere")


def npz(path: Path, **changes) -> Source:
    return Source(name="mine", source="npz", path=str(path), **changes)


@given(
    seed=st.integers(0, 99),
    shape=st.sampled_from(["rows", "columns", "csr"]),
    sparse=st.booleans(),
    directed=st.booleans(),
    split=st.sampled_from([None, "mask", "masks", "list"]),
    multilabel=st.sampled_from([None, bool, float]),
    classes=st.sampled_from([3, 3, 1000]),
    symmetrise=st.sampled_from([None, True, False]),
)
def test_what_is_stored_is_what_is_loaded(
    tmp_path, seed, shape, sparse, directed, split, multilabel, classes, symmetrise
):
    """Empty classes are kept where num_classes says so; directed counts only where symmetrise is left out."""
    what = small(seed=seed)
    stored = parts_of(what)
    if shape == "columns":
        stored["edges"] = stored["edges"].T
    elif shape == "csr":
        del stored["edges"]
        matrix = sp.csr_matrix((np.ones(len(what.src)), (what.src, what.dst)), (what.num_vertices,) * 2)
        stored |= {"indptr": matrix.indptr, "indices": matrix.indices}
    if sparse:
        stored |= compressed(stored.pop("features"), "attr_")
    if multilabel:
        stored["labels"] = np.eye(classes, dtype=multilabel)[what.labels]
    if classes > 3:
        stored["num_classes"] = classes
    if directed:
        stored["directed"] = True if symmetrise is None else "yes"
    masks = {key: what.kinds == kind for kind, key in enumerate(("train", "val", "test"), start=1)}
    if split:
        make = {"mask": lambda m: m, "masks": lambda m: np.stack([~m, m]), "list": np.flatnonzero}[split]
        stored |= {key: make(mask) for key, mask in masks.items()}
    np.savez(tmp_path / "g.npz", **stored)
    graph = npz(tmp_path / "g.npz", symmetrise=symmetrise, mask=int(split == "masks")).load(NOWHERE, seed=1)
    both = symmetrise if symmetrise is not None else not directed
    np.testing.assert_array_equal(dense(graph), what.adjacency(both))
    np.testing.assert_array_equal(graph.features, what.features)
    np.testing.assert_array_equal(graph.labels, np.eye(classes)[what.labels] if multilabel else what.labels)
    assert graph.labels.dtype == (np.uint8 if multilabel else np.int32)
    assert graph.name == "mine" and graph.num_classes == classes and graph.multilabel == bool(multilabel)
    if split:
        assert all(np.array_equal(getattr(graph, key), mask) for key, mask in masks.items())
    else:
        assert graph.train.sum() == 24


V = 40
ONES = np.ones(V, bool)
SPARSE = {"features": None, **compressed(small().features, "attr_")}
OF_TORCH_GEOMETRIC = dict.fromkeys(("edges", "features", "labels"))
OF_TORCH_GEOMETRIC |= {"edge_index": np.zeros((2, 1), int), "x": small().features, "y": small().labels}
OF_TORCH_GEOMETRIC |= {f"{part}_mask": ONES for part in ("train", "val", "test")}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"edges": None}, "the edges are missing: give edges, or indptr and indices"),
        ({"edges": None, "edge": np.zeros((1, 2), int)}, '"edge" is not a key; did you mean "edges"'),
        ({"indptr": np.zeros(V + 1, int), "indices": np.zeros(0, int)}, "the edges are there twice"),
        ({"features": None}, "the features are missing"),
        ({**SPARSE, "attr_shape": [V, 6, 1]}, "not a matrix shape"),
        ({**SPARSE, "attr_shape": [V + 1, 6]}, "attr_indptr has 41 entries for 41 rows"),
        ({**SPARSE, "attr_shape": [V, 1 << 33]}, "would take 34.4 GB of memory"),
        ({"labels": None}, "labels is missing"),
        ({"train": ONES}, "only train of train, val and test is given"),
        ({"edges": np.zeros((3, 3), int)}, r"edges has shape \(3, 3\)"),
        ({"edges": None, "indptr": 7, "indices": np.zeros(0, int)}, "indptr has 1 entries for 40 rows"),
        ({**SPARSE, "attr_indptr": 7}, "attr_indptr has 1 entries for 40 rows"),
        (
            {"edges": None, "indptr": np.zeros(V, int), "indices": np.zeros(0, int)},
            "indptr has 40 entries for 40 rows",
        ),
        (
            {"edges": None, "indptr": np.zeros(V + 1, int), "indices": np.zeros((0, 2), int)},
            "indices has shape",
        ),
        (
            {"features": np.full((V, 2), 1e39)},
            "feature 0 of vertex 0 is 1e.39, more than float32 holds: scale",
        ),
        ({"features": np.ones(V)}, r"features of type float64 and shape \(40,\)"),
        ({"labels": np.full(V, 0.5)}, "label 0.5 is not a whole number"),
        ({"labels": np.full(V, 2**40)}, "out of range; number the classes from 0"),
        ({"labels": np.full((V, 3), 2)}, "give 0 or 1 in each column"),
        (
            {"labels": np.where(np.arange(V) == 11, 10**6, small().labels)},
            r"the largest label is 1000000 \(of vertex 11\), which makes 1000001 classes, but only 4 of them"
            " have a vertex: renumber the labels 0 to 3, or store num_classes to keep empty classes$",
        ),
        (
            {"labels": np.repeat([np.arange(9) < 4], V, axis=0)},
            "labels has 9 columns, one per class, but only 4 of these classes have a vertex: leave out the"
            " empty columns, or store num_classes to keep empty classes$",
        ),
        ({"num_classes": 1 << 62}, "num_classes=4611686018427387904 for 40 vertices"),
        (
            OF_TORCH_GEOMETRIC,
            "torch_geometric's names: rename edge_index to edges, x to features, y to labels, train_mask to"
            " train, val_mask to val, test_mask to test$",
        ),
        ({"directed": 2}, "directed=2 cannot be used: give one bool"),
        ({"train": ONES[1:], "val": ONES, "test": ONES}, r"train has shape \(39,\) for 40 vertices"),
        ({"train": np.arange(V) % 2, "val": ~ONES, "test": ~ONES}, "train lists a vertex twice"),
        (
            {"train": ONES[None].repeat(2, 0), "val": ~ONES, "test": ~ONES},
            "train, val and test hold 2, 1, 1 splits",
        ),
        *(
            ({"edges": np.array([[0, 1], [1, 2], [2, 3]]), "edge_weight": weights}, says)
            for weights, says in (
                ([1.0, -1.0, 2.0], r"edge_weight=-1 of edge 1 cannot be used: give 0, or 1e-30 to 1e\+30"),
                ([1.0, 2.0, np.nan], "edge_weight=nan of edge 2"),
                ([np.inf, 2.0, 1.0], "edge_weight=inf of edge 0"),
                ([1.0, 1e-40, 1.0], "edge_weight=1e-40 of edge 1"),
                ([1.0, 2.0], "does not fit 3 edges: give one number per edge"),
                (np.array(["a", "b", "c"]), "give one number per edge"),
                (np.ones((3, 2)), "give one number per edge"),
            )
        ),
    ],
)
def test_a_malformed_graph_gets_its_sentence(changes, says, tmp_path):
    stored = {key: value for key, value in {**parts_of(small()), **changes}.items() if value is not None}
    np.savez(tmp_path / "g.npz", **stored)
    with pytest.raises(InputError, match=says) as error, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        npz(tmp_path / "g.npz").load(NOWHERE, seed=1)
    assert str(error.value).startswith(f'file "{tmp_path / "g.npz"}": ') and "\n" not in str(error.value)


def test_a_missing_and_a_truncated_file_are_named(tmp_path):
    np.savez(tmp_path / "whole.npz", **parts_of(small()))
    with pytest.raises(InputError, match='dataset.path=".*none.npz" is not a file'):
        npz(tmp_path / "none.npz").load(NOWHERE, seed=1)
    (tmp_path / "half.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:-400])
    with pytest.raises(InputError, match="half.npz.*truncated"):
        npz(tmp_path / "half.npz").load(NOWHERE, seed=1)


def test_an_unknown_array_and_a_key_that_the_source_does_not_read_are_ignored_aloud(tmp_path):
    np.savez(tmp_path / "g.npz", **parts_of(small()), trian=ONES)
    with pytest.warns(UserWarning) as said:
        npz(tmp_path / "g.npz", scale=0.5).load(NOWHERE, seed=1)
    told = " ".join(str(each.message) for each in said)
    assert '"trian" of the npz is ignored; did you mean "train"' in told
    assert "dataset.scale=0.5 is ignored" in told


@pytest.mark.parametrize(
    "edges, changes, warned",
    [
        ([[0, 1], [1, 2], [2, 2]], {}, "of 2 edges none has its reverse"),
        ([[0, 1], [1, 2], [2, 1]], {}, ""),
        ([[0, 1], [1, 2], [2, 2]], {"symmetrise": False}, ""),
    ],
)
def test_a_directed_graph_without_a_reverse_edge_is_said(edges, changes, warned, tmp_path):
    parts = {**parts_of(small()), "edges": np.array(edges), "directed": np.array(True)}
    np.savez(tmp_path / "g.npz", **parts)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        npz(tmp_path / "g.npz", **changes).load(NOWHERE, 1)
    assert [warned in str(each.message) for each in said] == ([True] if warned else [])


def test_mask_without_own_splits_is_refused(tmp_path):
    np.savez(tmp_path / "g.npz", **parts_of(small()))
    with pytest.raises(InputError, match="dataset.mask=1 chooses among own splits, but mine has none"):
        npz(tmp_path / "g.npz", mask=1).load(NOWHERE, seed=1)
    with pytest.warns(UserWarning, match='dataset.mask=1 is ignored: split "random" draws its own'):
        npz(tmp_path / "g.npz", mask=1, split="random").load(NOWHERE, seed=1)


def test_normalised_rows_sum_to_one_and_empty_rows_stay(tmp_path):
    stored = parts_of(small())
    stored["features"] = stored["features"] * 3
    stored["features"][5] = 0
    np.savez(tmp_path / "g.npz", **stored)
    plain = npz(tmp_path / "g.npz").load(NOWHERE, seed=1)
    sums = plain.features.sum(axis=1, keepdims=True)
    normal = npz(tmp_path / "g.npz", normalise_features=True).load(NOWHERE, seed=1)
    np.testing.assert_allclose(normal.features, plain.features / np.where(sums == 0, 1, sums), rtol=1e-6)
    stored["features"][7, 2] = -4
    np.savez(tmp_path / "g.npz", **stored)
    with pytest.raises(InputError, match="dataset.normalise_features=true .* mine has -4.0 at vertex 7"):
        npz(tmp_path / "g.npz", normalise_features=True).load(NOWHERE, seed=1)
    stored["features"][7] = 3e38
    for form in (stored, {**stored, "features": None, **compressed(stored["features"], "attr_")}):
        np.savez(tmp_path / "g.npz", **{key: value for key, value in form.items() if value is not None})
        with pytest.raises(InputError, match="the features of mine at vertex 7 have a sum beyond float32"):
            npz(tmp_path / "g.npz", normalise_features=True).load(NOWHERE, seed=1)


# -- the fingerprint --


def test_the_fingerprint_changes_with_whatever_changes_the_graph(tmp_path):
    path = tmp_path / "g.npz"
    np.savez(path, **parts_of(small()))
    base = npz(path).fingerprint(NOWHERE, 1)
    other_keys = [
        npz(path, split="random"),
        npz(path, symmetrise=True),
        npz(path, normalise_features=True),
        Source("yours", source="npz", path=str(path)),
    ]
    assert all(config.fingerprint(NOWHERE, 1) != base for config in other_keys)
    assert npz(path).fingerprint(NOWHERE, 2) != base, "the split is drawn by seed"
    np.savez(path, **parts_of(small(seed=1)))
    assert npz(path).fingerprint(NOWHERE, 1) != base


def test_the_fingerprint_ignores_the_seed_of_an_own_split_and_where_files_lie(tmp_path):
    for place in ("a", "b"):
        write_heterophilous(tmp_path / place / "tolokers", small())
    os.utime(tmp_path / "a/tolokers/raw/tolokers.npz", (0, 0))
    own, drawn = Source("tolokers"), Source("tolokers", split="random")
    assert own.fingerprint(tmp_path / "a", 1) == own.fingerprint(tmp_path / "b", 2)
    assert own.fingerprint(tmp_path / "a", 1) != Source("tolokers", mask=1).fingerprint(tmp_path / "a", 1)
    assert drawn.fingerprint(tmp_path / "a", 1) != drawn.fingerprint(tmp_path / "a", 2)
    assert str(tmp_path) not in str(drawn.fingerprint(tmp_path / "a", 1))


def test_the_fingerprint_of_a_twin_knows_its_scale_and_seed_only():
    def of(seed: int = 1, **keys) -> dict:
        return Source("reddit", source="twin", **keys).fingerprint(NOWHERE, seed)

    assert of(1) == of(2)
    low_label = [of(split="low_label"), of(2, split="low_label"), of(split="low_label", labels_per_class=5)]
    assert len({str(each) for each in (of(), of(scale=0.5), of(generator_seed=1), *low_label)}) == 6
    assert "labels_per_class" not in of(split="low_label", labels_per_class=20), "graphs keep their key"


def test_a_twin_is_split_by_the_runs_seed_where_asked():
    def trained_on(split: str, seed: int) -> np.ndarray:
        config = Source("corafull", source="twin", scale=0.04, split=split)
        return config.load(NOWHERE, seed).train

    assert np.array_equal(trained_on("own", 1), trained_on("own", 2))
    assert not np.array_equal(trained_on("random", 1), trained_on("random", 2))
