"""Building the CSR of in-edges, held against scipy."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.data import csr


@st.composite
def edge_lists(draw):
    n = draw(st.integers(1, 12))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=60))
    dtype = draw(st.sampled_from([np.int32, np.int64, np.uint16, np.uint64]))
    return n, np.array(pairs, dtype=dtype).reshape(-1, 2)


def expected(n: int, pairs: np.ndarray, symmetrise: bool, self_loops: bool) -> sp.csr_matrix:
    """[V, V], row v the in-neighbours of v."""
    matrix = sp.csr_matrix((np.ones(len(pairs)), (pairs[:, 1], pairs[:, 0])), (n, n))
    matrix = matrix + matrix.T if symmetrise else matrix
    if not self_loops:
        matrix = matrix.tolil()
        matrix.setdiag(0)
    matrix = matrix.tocsr()
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return matrix


def assert_same(edges: csr.InEdges, want: sp.csr_matrix) -> None:
    np.testing.assert_array_equal(edges.indptr, want.indptr)
    np.testing.assert_array_equal(edges.indices, want.indices)
    assert edges.indptr.dtype == edges.indices.dtype == np.int32
    assert edges.symmetric == ((want != 0).toarray() == (want.T != 0).toarray()).all()


def rows_of(n: int, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(indptr, order): the pairs as rows by their first end; columns repeat and come in any order. The type
    of indptr is that of the pairs."""
    indptr = np.concatenate([[0], np.cumsum(np.bincount(pairs[:, 0].astype(int), minlength=n))])
    return indptr.astype(pairs.dtype), np.argsort(pairs[:, 0], kind="stable")


@given(edge_lists(), st.booleans(), st.booleans())
def test_edges_and_stored_rows_become_the_sorted_csr_of_in_edges_without_repeats(
    edges, symmetrise, self_loops
):
    n, pairs = edges
    want = expected(n, pairs, symmetrise, self_loops)
    kept = {"symmetrise": symmetrise, "self_loops": self_loops}
    assert_same(csr.from_edges(pairs[:, 0], pairs[:, 1], n, **kept), want)
    indptr, order = rows_of(n, pairs)
    assert_same(csr.from_csr(indptr, pairs[order, 1], **kept), want)


@given(edge_lists())
def test_sparse_rows_become_dense_as_in_scipy(entries):
    n, pairs = entries
    indptr, order = rows_of(n, pairs)
    values, columns = order.astype(np.float64), pairs[order, 1]
    dense = csr.sparse_rows(indptr, columns, values, n, "attr").dense()
    np.testing.assert_array_equal(dense, sp.csr_matrix((values, columns, indptr), (n, n)).toarray())
    assert dense.dtype == np.float32


@pytest.mark.parametrize(
    ("make", "parts", "says"),
    [
        ("from_edges", ([0, 3], [1, 1], 3), "endpoint 3 is not a vertex; vertices are 0 to 2"),
        ("from_edges", ([0.0], [1.0], 3), "float64 are not vertex numbers"),
        ("from_edges", ([0], [1, 2], 3), "give two lists of the same length"),
        ("from_csr", ([0, 2, 1, 2], [0, 1]), "must rise from 0 to 2"),
        ("from_csr", ([0, 2], [0, 7]), "endpoint 7 is not a vertex"),
        ("sparse_rows", ([0, 1], [4], [1.0], 4, "attr"), "column 4 is out of range"),
        ("sparse_rows", ([0, 2], [1], [1.0], 4, "attr"), "must rise from 0 to 1"),
        ("sparse_rows", ([0, 1], [1], [1.0, 1.0], 4, "attr"), "give one integer index per value"),
    ],
)
def test_parts_that_are_no_graph_are_refused(make, parts, says):
    parts = [np.array(part) if isinstance(part, list) else part for part in parts]
    with pytest.raises(InputError, match=says):
        getattr(csr, make)(*parts, **({} if make == "sparse_rows" else {"symmetrise": True}))
