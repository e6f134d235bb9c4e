"""What cannot be imported is refused in one sentence, and leaves nothing behind."""

import pickle
import sys

import pytest
import torch

from harness.data.importing.__main__ import main
from tests.importing import in_this_process, refused, sample, tensors_of, write  # noqa: F401
from tests.raw_files import Hostile

HARM = Hostile(exec, "raise SystemExit('loaded')")


def test_a_pickle_is_never_loaded(tmp_path, capsys):
    torch.save({"edge_index": HARM}, tmp_path / "a.pt")
    assert "torch.save(data.to_dict(), FILE)" in refused(tmp_path, capsys, "pyg", tmp_path / "a.pt")
    (tmp_path / "b.pt").write_bytes(pickle.dumps(HARM))
    assert "is not loaded" in refused(tmp_path, capsys, "pyg", tmp_path / "b.pt")


def test_without_its_package_a_kind_names_the_extra(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_geometric.data", None)
    assert 'pip install "halobench[import]"' in refused(tmp_path, capsys, "pyg", tmp_path / "a.pt")


ONLY = ("--drop", "label")
TABLES = [
    ({"edges": "a,b\nb,z\n"}, (), ["edges.csv", "line 2", 'vertex "z" has no row in', "add one"]),
    ({"edges": "a,b,1\nb,c,-2\n"}, (), ["line 2", "weight -2 is negative: give 0 or more"]),
    ({"edges": "a,b,1\nb,c,far\n"}, (), ["line 2", 'column 3 holds "far"', "give a finite number\n"]),
    ({"edges": "a,b,1\nb,a,2\n"}, (), ["edge b -> a weighs 2 and a -> b weighs 1", "or --directed"]),
    ({"edges": "a\nb\n"}, (), ["edges.csv", "has 1 column: give source, target"]),
    ({"edges": ""}, (), ["edges.csv", "it has no rows"]),
    (
        {"features": "id,x,label\na,1,1\nb,tall,0\n"},
        (),
        ['features.csv", line 3: ', '"tall"', "give a finite number, or leave the column out with --drop\n"],
    ),
    (
        {"features": "id,x,label\na,1,1\nb,1e39,0\n"},
        (),
        ["features.csv", "feature 0 of vertex 1 is 1e+39, more than float32 holds", "--drop"],
    ),
    (
        {"features": "id,x,label\na,1,0\nb,1,0\nc,1,0\nd,1,0\ne,1,0\n"},
        (),
        ['file "', 'features.csv": ', "classes"],
    ),
    ({"features": "id,x,label\na,1,1\na,2,0\n"}, (), ["line 3", 'vertex "a" has a row above']),
    (
        {"features": "id,x\na,1\nb,2\n"},
        (),
        ["features.csv", "label, labels, y, class or target: give --label-column NAME, or --labels FILE\n"],
    ),
    (
        {"features": "a,1,1\nb,2,0\n"},
        (),
        ["has no line of column names, so none is the label: add such a line, or give --labels FILE\n"],
    ),
    ({"labels": "id\na\nb\n"}, ONLY, ["labels.csv", "has no column of labels: add one\n"]),
    ({"features": "id,label\na,1\nb,0\n"}, (), ["no column of features"]),
    ({"features": "\x93NUMPY\x01\x00v"}, (), ["features.csv", "it is not text", "numpy.savetxt(FILE"]),
    (
        {"features": "x\n1\n2\n3\n", "labels": "id,label\n0,1\n1,0\n2,1\n"},
        ("--rows-in-order",),
        ["labels.csv", 'has ids in column "id"', "leave out --rows-in-order"],
    ),
    ({}, ("--label-column", "labl"), ['no column "labl"; did you mean "label"?']),
    ({"labels": "id,label\na,1\nz,0\n"}, ONLY, ["labels.csv", "line 3", 'vertex "z"']),
    ({"labels": "id,label,split\na,1,train\nb,0,dev\n"}, ONLY, ["line 3", 'split "dev"', "give train"]),
    ({"labels": "id,p,q\na,1,1\nb,0,2\nc,0,0\nd,0,0\ne,1,1\n"}, ONLY, ["line 3", "give 0 or 1 in each"]),
]


@pytest.mark.parametrize("files, more, words", TABLES)
def test_tables_that_cannot_be_used_are_one_sentence(tmp_path, capsys, files, more, words):
    said = refused(tmp_path, capsys, *write(tmp_path, **files), *more)
    for word in words:
        assert word in said, said


def test_bytes_that_are_no_text_and_files_that_are_not_there(tmp_path, capsys):
    arguments = write(tmp_path)
    (tmp_path / "edges.csv").write_bytes(b"\xff\xfe\x00a,b\n\x9f")
    assert "edges.csv" in refused(tmp_path, capsys, *arguments)
    assert "is not there" in refused(tmp_path, capsys, "edges", tmp_path / "no.csv", *arguments[2:])
    assert "is not there" in refused(tmp_path, capsys, "pyg", tmp_path / "no.pt")


def test_a_file_that_is_there_is_kept(tmp_path, capsys):
    arguments = [*map(str, write(tmp_path)), "--out", str(tmp_path / "g.npz")]
    (tmp_path / "g.npz").write_text("mine")
    assert main(arguments) == 2 and "--overwrite" in capsys.readouterr().err
    assert (tmp_path / "g.npz").read_text() == "mine"
    assert main([*arguments[:-1], str(tmp_path / "g.csv")]) == 2 and ".npz" in capsys.readouterr().err


@pytest.mark.parametrize(
    "changes,words",
    [
        ({"edge_index": None}, "has no edges"),
        ({"x": None}, "has no features"),
        ({"train_mask": None}, "give all three or none"),
        ({"train_mask": torch.arange(16)}, "the mask of train holds 2: give true or false for each vertex"),
        ({"x": torch.full((16, 2), torch.nan)}, "NaN"),
        ({"x": torch.tensor(1.0)}, "features have shape (): give [vertices, features]"),
        ({"edge_index": torch.zeros(16, 2, dtype=int)}, "edge_index has shape (16, 2): give [2, edges]"),
    ],
)
def test_tensors_that_cannot_be_used_are_one_sentence(tmp_path, capsys, changes, words):
    given = {**tensors_of(sample()), **changes}
    torch.save({name: value for name, value in given.items() if value is not None}, tmp_path / "a.pt")
    said = refused(tmp_path, capsys, "pyg", tmp_path / "a.pt")
    assert words in said and "a.pt" in said
