"""ByteGNN's partitioner against a replay of its formulas in plain Python."""

import math
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.base.target import made
from harness.data.partition.config import Partitioner
from harness.data.partition.neighbourhood import UNREACHED, Neighbourhood, blocks
from tests.graphs import graphs


def in_edges(graph) -> list[set[int]]:
    return [
        {int(u) for u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]} - {v}
        for v in range(graph.num_vertices)
    ]


def distances(sources: list[set[int]], start: int) -> dict[int, int]:
    """Hops along in-edges from `start`."""
    found, queue = {start: 0}, deque([start])
    while queue:
        v = queue.popleft()
        for u in sources[v] - found.keys():
            found[u] = found[v] + 1
            queue.append(u)
    return found


@given(graph=graphs(max_vertices=25), hops=st.integers(0, 4), data=st.data())
def test_a_vertex_joins_the_nearest_centre_within_reach_and_of_these_the_first(graph, hops, data):
    n = graph.num_vertices
    centres = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool)
    reach = {int(c): distances(in_edges(graph), int(c)) for c in np.flatnonzero(centres)}
    for v, centre in enumerate(blocks(graph, centres, hops)):
        near = sorted((found[v], c) for c, found in reach.items() if found.get(v, hops + 1) <= hops)
        assert centre == (near[0][1] if near else UNREACHED)
        assert centre == v or not centres[v]


def check_replay(graph, parts: int, how: Neighbourhood, found: np.ndarray) -> None:
    """Algorithm 2, a block at a time: each goes to a part of highest score, and of parts that are alike to
    the first."""
    sources, n = in_edges(graph), graph.num_vertices
    touching = [{*us, *(w for w in range(n) if v in sources[w])} for v, us in enumerate(sources)]
    splits = {"train": graph.train, "val": graph.val, "test": graph.test}
    weights = {"train": how.alpha, "val": how.beta, "test": how.gamma}
    centres = graph.train if how.centres == "train" else graph.train | graph.val | graph.test
    centre = blocks(graph, centres, how.hops)
    members = {int(c): np.flatnonzero(centre == c) for c in np.unique(centre) if c != UNREACHED}

    def rank(c: int) -> tuple[int, int]:
        printed = max(int(mask[members[c]].sum()) for mask in splits.values())
        return -(printed if how.literal else len(members[c])), c

    owners = np.full(n, -1)
    line = [(True, members[c]) for c in sorted(members, key=rank)]
    line += [(False, np.array([v])) for v in np.flatnonzero(centre == UNREACHED)]
    for labelled, block in line:
        (chosen,) = set(found[block].tolist())
        scores, facts = [], []
        for j in range(parts):
            part = owners == j
            shared = sum(owners[w] == j for v in block for w in touching[v])
            facts.append((shared, part.sum(), *((part & mask).sum() for mask in splits.values())))
            crossing = shared / part.sum() if part.any() else 0.0
            if labelled:
                balance = 1 - sum(
                    weights[s] * (part & mask).sum() / (mask.sum() / parts)
                    for s, mask in splits.items() if mask.any()
                )  # fmt: skip
            else:
                balance = 1 - part.sum() * parts / n
            scores.append((crossing + (not how.literal or not labelled)) * balance)
        assert math.isclose(scores[chosen], max(scores), abs_tol=1e-12)
        assert facts.index(facts[chosen]) == chosen
        owners[block] = chosen
    assert (owners == found).all()


@given(
    graph=graphs(min_vertices=4, max_vertices=25),
    parts=st.integers(2, 4),
    literal=st.booleans(),
    centres=st.sampled_from(["labelled", "train"]),
    weights=st.sampled_from([(1 / 3, 1 / 3, 1 / 3), (1.0, 1.0, 1.0), (1.0, 0.0, 0.0), (0.0, 0.0, 0.0)]),
    hops=st.integers(0, 3),
)
def test_parts_are_those_of_the_printed_formulas(graph, parts, literal, centres, weights, hops):
    how = Neighbourhood(None, hops, centres, literal, *weights)
    found = how.vertex_owners(graph, parts, 0)
    assert found.dtype == np.int32 and ((found >= 0) & (found < parts)).all()
    check_replay(graph, parts, how, found)


def test_centres_of_no_known_kind_are_one_sentence():
    block = {"_target_": "harness.data.partition.neighbourhood.Neighbourhood", "centres": "tran"}
    with pytest.raises(InputError, match='partition.centres="tran" is not known; did you mean "train"'):
        made(block, "partition", Partitioner)
