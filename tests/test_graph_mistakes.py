"""What people give by mistake in place of a graph: one sentence says what was given and what is wanted."""

import dataclasses
import gzip
import io
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.data.raw import class_count
from harness.data.sources import Source
from tests import raw_files
from tests.raw_files import Hostile, parts_of, refused, small, write

V = 40


def refusal(path: Path) -> str:
    """The one sentence with which `path` is refused as an npz."""
    with pytest.raises(InputError) as error:
        Source("mine", source="npz", path=str(path)).load(path.parent, seed=1)
    assert "\n" not in str(error.value)
    return str(error.value)


def refusal_of(folder: Path, **stored) -> str:
    np.savez(folder / "g.npz", **stored)
    return refusal(folder / "g.npz")


# -- labels that make implausibly many classes --


# A data set of each reader, and the file that it takes labels from.
LABELS_IN = {
    "reddit": "reddit_data.npz",
    "flickr": "class_map.json",
    "coauthor-cs": "ms_academic_cs.npz",
    "tolokers": "tolokers.npz",
    "cora": "ind.cora.ally",
    "ogbn-arxiv": "node-label.csv.gz",
    "ogbn-papers100m": "node-label.npz",
}


@pytest.mark.parametrize("name", LABELS_IN)
def test_every_reader_refuses_implausible_labels(name, tmp_path):
    what = small()
    what.labels[7] = 100
    write(name, tmp_path, what)
    says = r"the largest label is 100 \(of vertex 7\), which makes 101 classes, but only 4"
    refused(name, tmp_path, f"{LABELS_IN[name]}.*{says} .*, or fetch the file again")


@given(st.lists(st.integers(-1, 12), max_size=30))
def test_classes_that_are_mostly_empty_outnumber_labels_or_are_two_but_0_and_1_are_refused(labels):
    known = [label for label in labels if label >= 0]
    count, used = max(known, default=-1) + 1, len(set(known))
    if count > len(known) or count - used > used or (used == 2 and count > 2):
        with pytest.raises(InputError, match=f"makes {count} classes, but only {used} of them"):
            class_count(np.array(labels, np.int32))
    else:
        assert class_count(np.array(labels, np.int32)) == count


# -- features of too few rows --


def chain(form: str, rows: int) -> dict[str, np.ndarray]:
    """0 -> 1 -> ... -> V - 1, with labels for all, and features for the first `rows`."""
    what = dataclasses.replace(small(), src=np.arange(V - 1), dst=np.arange(1, V))
    stored = parts_of(what) | {"features": what.features[:rows]}
    if form == "indptr":
        del stored["edges"]
        stored |= {"indptr": np.minimum(np.arange(V + 1), V - 1), "indices": what.dst}
    return stored


@pytest.mark.parametrize(
    ("form", "found", "otherwise"),
    [
        ("edges", "edges name vertex 39", "number the vertices 0 to 29"),
        ("indptr", "indptr describes 40 vertices", "give indptr 31 entries"),
    ],
)
def test_features_that_are_too_short_are_blamed_alone_where_labels_are_not(form, found, otherwise, tmp_path):
    stored = chain(form, rows=30)
    says = refusal_of(tmp_path, **stored)
    assert f"features has 30 rows and labels 40, but {found}: " in says
    assert says.endswith(": give features one row per vertex")
    says = refusal_of(tmp_path, **{**stored, "labels": stored["labels"][:30]})
    assert f"features has 30 rows and labels 30, but {found}: " in says
    assert says.endswith(f"give features and labels one row per vertex, or {otherwise}")


def test_a_real_graphs_short_features_are_blamed(tmp_path):
    folder = write("flickr", tmp_path, small())
    np.save(folder / "raw/feats.npy", small().features[:30])
    says = "feats.npy.*features has 30 rows for the 40 vertices of adj_full.npz"
    refused("flickr", tmp_path, says)
    # Where edges stand in a file of their own, nothing but the features says how many vertices there are.
    folder = write("ogbn-arxiv", tmp_path, small())
    raw_files.write_table(folder / "raw/node-feat.csv.gz", small().features[:30])
    refused("ogbn-arxiv", tmp_path, "vertices are 0 to 29, one per row of features")


# -- files that are no npz --


def saved(save, *what, **how) -> bytes:
    save(file := io.BytesIO(), *what, **how)
    return file.getvalue()


HARM = Hostile(print, "a pickle was loaded")
OBJECTS = saved(np.save, np.array([HARM], dtype=object), allow_pickle=True)
MISTAKES = {
    "csv": (b"source,target\n0,1\n1,2\n", "this is text"),
    "long text": (("é" * 2000).encode(), "this is text"),  # read up to the middle of a character
    "object npy": (OBJECTS, "this is a single array"),
    "empty": (b"", "this is empty"),
    "gzip": (gzip.compress(b"0,1\n"), "this is a gzip file"),
    "noise": (bytes(range(128, 256)), "this is in a format not known here"),
    "torch": (
        saved(lambda file: torch.save({"x": torch.ones(3)}, file)),
        "this is a zip archive without numpy arrays",
    ),
    "pickle 0": (pickle.dumps(HARM, protocol=0), "this is text"),
    "pickle 2": (pickle.dumps(HARM, protocol=2), "this is a pickle, which is never loaded"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_another_file_is_named_for_what_it_is(what, tmp_path, capsys):
    content, kind = MISTAKES[what]
    (path := tmp_path / "given.npz").write_bytes(content)
    says = refusal(path)
    assert kind in says and str(path) in says
    assert "not an npz archive: make one with `halobench import`" in says
    assert "np.savez under the names of docs/data.md" in says
    assert not re.search("allow_pickle|unsafe", says)
    assert not capsys.readouterr().out


def test_a_folder_is_no_file(tmp_path):
    assert "is a folder, not a file: give the path of an npz" in refusal(tmp_path)


@pytest.mark.parametrize("key", ["edges", "features", "labels"])
def test_objects_inside_an_npz_run_nothing(key, tmp_path, capsys):
    says = refusal_of(tmp_path, **{**parts_of(small()), key: np.array([HARM] * V, dtype=object)})
    assert f'array "{key}" holds Python objects, which are never loaded: store it as numbers' in says
    assert not capsys.readouterr().out


@given(
    st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode)),
    st.sampled_from([b"", b"PK\x03\x04", b"\x93NUMPY", b"\x80\x04"]),
)
def test_whatever_bytes_are_given_end_in_one_sentence(tmp_path, content, start):
    (tmp_path / "given.npz").write_bytes(start + content)
    assert not re.search("allow_pickle|unsafe", refusal(tmp_path / "given.npz"))


def test_a_real_graphs_array_is_not_advised_to_be_loaded_unsafely(tmp_path, capsys):
    (write("flickr", tmp_path, small()) / "raw/feats.npy").write_bytes(OBJECTS)
    assert not re.search("allow_pickle|unsafe", refused("flickr", tmp_path, "feats.npy"))
    assert not capsys.readouterr().out
