"""Graphs in other formats become the npz that training reads: the same graph, whatever it was kept in."""

import numpy as np
import pytest
import torch

from harness.base.errors import InputError
from harness.data.importing import text, vertices
from tests.importing import (
    SPLITS,
    assert_same,
    edge_tables,
    imported,
    in_this_process,  # noqa: F401
    loaded,
    sample,
    tensors_of,
    write,
    write_table,
)


@pytest.mark.parametrize(
    ("kept", "directed", "weighted"), [("data", True, False), ("dict", False, True), ("dataset", True, True)]
)
def test_a_pyg_data(tmp_path, capsys, kept, directed, weighted):
    from torch_geometric.data import Data

    graph = sample(directed=directed, weighted=weighted)
    data = Data(**tensors_of(graph))
    torch.save(
        {"data": data, "dict": data.to_dict(), "dataset": (data.to_dict(), None, Data)}[kept],
        tmp_path / "a.pt",
    )
    said = imported(tmp_path, capsys, "pyg", tmp_path / "a.pt")
    assert_same(loaded(tmp_path / "g.npz"), graph)
    assert ("not every edge has a reverse" in said) == directed and "the source's own" in said


def test_a_pyg_data_with_weights_in_edge_attr_and_several_splits(tmp_path, capsys):
    graph = sample(weighted=True)
    given = tensors_of(graph)
    given["edge_attr"] = given.pop("edge_weight")[:, None]
    for name in SPLITS:
        given[f"{name}_mask"] = torch.stack([given[f"{name}_mask"]] * 3, 1)
    torch.save(given, tmp_path / "a.pt")
    said = imported(tmp_path, capsys, "pyg", tmp_path / "a.pt")
    assert_same(loaded(tmp_path / "g.npz"), graph)
    assert "edge_attr, which has one number per edge" in said and "the first of 3" in said


@pytest.mark.parametrize(
    ("separator", "suffix", "ids", "directed", "weighted"),
    [
        (",", ".csv", "{}", False, False),
        ("\t", ".tsv", "v{}", True, True),
        (";", ".csv.gz", "10{:02d}", False, True),
        (",", ".csv", "Vertex No {}", True, False),
    ],
)
def test_tables(tmp_path, capsys, separator, suffix, ids, directed, weighted):
    graph = sample(3, directed, weighted)
    said = imported(tmp_path, capsys, *edge_tables(tmp_path, graph, separator, suffix, ids.format))
    got = loaded(tmp_path / "g.npz")
    # Classes that do not begin at 0 are numbered anew, under their names.
    stored = np.load(tmp_path / "g.npz")
    if "class_names" in stored:
        names = np.append(stored["class_names"].astype(np.int32), -1)
        got = got.replace(labels=names[got.labels])
    assert_same(got, graph)
    assert ("renumbered" in said) == (ids != "{}")
    assert ("directed, as asked" in said) == directed and ("taken as undirected" in said) == (not directed)


def test_tables_without_names_and_without_ids(tmp_path, capsys):
    graph = sample(3)
    arguments = edge_tables(tmp_path, graph, ids=str, header=False)
    write_table(tmp_path / "features.csv", graph.features.tolist())
    write_table(tmp_path / "labels.csv", [[max(label, -1)] for label in graph.labels.tolist()])
    imported(tmp_path, capsys, *arguments, "--rows-in-order", "--no-header")
    assert_same(loaded(tmp_path / "g.npz"), graph, split=False)


def test_the_summary_says_what_was_found_and_assumed(tmp_path, capsys):
    said = imported(tmp_path, capsys, *write(tmp_path, edges="source,target\na,b\nb,a\na,b\nc,c\nb,c\n"))
    for words in (
        "5 vertices, 5 directed edges, 2 features, 2 classes",
        "5 listed, 2 of them in both directions: 2 edges between two vertices, in training two directed ones"
        " each; taken as undirected (--directed keeps directions)",
        "self-loops  1, kept in the file and not used in training",
        "1 repeated edges, which count once",
        "named, in order of name: 0 = cat, 1 = dog",
        "renumbered 0 to 4; their names are kept as vertex_ids",
        "none in the source: each run draws 60 % train, 20 % val, 20 % test by its seed",
        "line 1 names its columns (source, target)",
    ):
        assert words in said, said
    stored = np.load(tmp_path / "g.npz")
    assert stored["class_names"].tolist() == ["cat", "dog"]
    assert stored["vertex_ids"].tolist() == list("abcde")


def test_the_summary_says_what_follows_from_a_split_without_validation_vertices(tmp_path, capsys):
    graph = sample()
    assert "without val" not in imported(tmp_path, capsys, *edge_tables(tmp_path, graph))
    graph.val[:] = False
    said = imported(tmp_path, capsys, *edge_tables(tmp_path, graph))
    assert " 0 val, " in said and "; without val, a run is judged by its last evaluation" in said


def test_ids_count_as_numbers_in_all_tables_or_in_none(tmp_path):
    """Beside the vertex "x", "01" is another vertex than "1" in edges and labels too."""
    features, labels, edges = (tmp_path / f"{name}.csv" for name in "fle")
    features.write_text("id,a,b\n1,1,2\n01,3,4\nx,5,6\n")
    labels.write_text("id,label\n01,B\n")
    edges.write_text("01,1\n01,01\n")
    found = vertices.read(features, labels)
    assert found.labels.tolist() == [-1, 0, -1]
    assert vertices.endpoints(found, text.read(edges, False)).tolist() == [[1, 0], [1, 1]]


def test_no_label_is_no_column_s_name_and_no_class(tmp_path):
    features, labels = tmp_path / "f.csv", tmp_path / "l.csv"
    features.write_text("".join(f"{v},0.5\n" for v in range(4)))
    for lacking in ("none", "-1.0", "-1", ""):
        labels.write_text(f"{lacking}\n0\n1\n1\n")
        found = vertices.read(features, labels, rows_in_order=True)
        assert found.labels.tolist() == [-1, 0, 1, 1] and found.class_names is None


@pytest.mark.parametrize("line, columns", [("1,2", "2 columns"), ("1", "1 column")])
def test_a_short_line_is_refused(tmp_path, line, columns):
    """One whose last cell is empty is as long as the others."""
    table = tmp_path / "t.csv"
    table.write_text("# c\n1,2,\n1,2,3\n")
    assert text.read(table, False).cells.tolist() == [["1", "2", ""], ["1", "2", "3"]]
    table.write_text(f"# c\n1,2,3\n{line}\n")
    with pytest.raises(InputError, match=f"line 3 has {columns} where the first has 3: give every line the"):
        text.read(table, False)


def test_rows_below_a_cell_of_two_lines_are_named_by_their_own_line(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text('# c\n"i\nd",label\n"a\nb",1\nc,x\n')
    found = text.read(table, True)
    with pytest.raises(InputError, match='line 6: column "label" holds "x" where a number is wanted'):
        found.numbers([1])
    assert found.first == 2, "the line of its names"
    table.write_text('"a\nb",1\nc\n')
    with pytest.raises(InputError, match="line 3 has 1 column where the first has 2"):
        text.read(table, False)


@pytest.mark.parametrize(
    "lines, want",
    [
        ('a,"p, q"\n"b",r\n', [["a", "p, q"], ["b", "r"]]),
        ('"id" "x1"  "label"\n"a" 1  "p q" \n', [["id", "x1", "label"], ["a", "1", "p q"]]),
    ],
    ids=["commas", "spaces"],
)
def test_a_separator_in_quotes_separates_nothing(tmp_path, lines, want):
    (tmp_path / "t.csv").write_text(lines)
    assert text.read(tmp_path / "t.csv", False).cells.tolist() == want


@pytest.mark.parametrize(
    "lines, said",
    [
        ('a,p\nb,q\nc,"r\nd,p\n', "line 4 cannot be split into columns .*: close every quote"),
        ('"a\nb",p\nb,"q"r\n', "line 4 cannot be split into columns .*: close every quote"),
        (f"a,{'p' * 140_000}\n", "line 2 cannot be split into columns .*: shorten the cell"),
    ],
    ids=["to the end", "after a cell of two lines", "none"],
)
def test_a_quote_that_is_not_closed_where_its_cell_ends_is_refused_with_its_line(tmp_path, lines, said):
    """It does not make one cell of the lines after it."""
    table = tmp_path / "t.csv"
    table.write_text(f"id,label\n{lines}")
    with pytest.raises(InputError, match=said):
        text.read(table, True)


def test_label_sets_from_several_columns(tmp_path, capsys):
    files = write(tmp_path, labels="id,red,round\nc,0,1\na,1,1\nb,0,0\nd,1,0\ne,0,0\n")
    imported(tmp_path, capsys, *files, "--drop", "label")
    np.testing.assert_array_equal(loaded(tmp_path / "g.npz").labels, [[1, 1], [0, 0], [0, 1], [1, 0], [0, 0]])


def test_repeated_edges_add_up_their_weights(tmp_path, capsys):
    said = imported(tmp_path, capsys, *write(tmp_path, edges="a,b,1\nb,c,2\na,b,0.5\n"))
    assert "1 repeated edges, whose weights are added up" in said
    assert sorted(loaded(tmp_path / "g.npz").weights.tolist()) == [1.5, 1.5, 2, 2]
