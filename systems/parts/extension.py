"""Rows of other workers' vertices that a worker computes itself, instead of fetching them.

A worker knows the vertices that its own depend on, and the edges into them. Layer l takes the rows C_l and
gives the rows C_{l+1}; C_L are its own rows, or its training vertices. From the last layer back:

    N_l = C_{l+1} and its in-neighbours,    C_l = N_l without the remote rows F_l that are fetched

The caller says which remote rows of N_l are in C_l. In layer 0 none are computed: C_0 are the rows of C_1 and
own rows, and the features of the other remote vertices of N_0 are fetched as F_0.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from harness.comm.comm import Comm
from harness.comm.flight import HaloPlan
from harness.comm.pulls import Exchanged, Own
from harness.comm.recorder import Recorder
from harness.comm.work import moved
from harness.core.needed import NeededRows, ordered, touched
from harness.data.partition.shard import Csr, Shard
from systems.parts.in_neighbours import lists_of
from systems.parts.neighbours import ALL, Chosen, Expander, Names


@dataclass
class Around:
    """What a worker knows: u vertices, its n own ones as in its shard, then others by owner and row.

    shard   the worker's own shard with all u vertices, as `ComputesOthers.rows_of_layers` gives it
    own     n
    owners, rows   [u - n] of the others: who owns each, and its row there
    asked   bytes that this worker's questions for lists and their answers took
    """

    shard: Shard
    own: int
    owners: np.ndarray
    rows: np.ndarray
    asked: int

    @property
    def edges(self) -> Csr:
        """[u, u] in-edges; of a vertex so far away that its list was not asked for, none."""
        return self.shard.inner_edges


def around(shard: Shard, comm: Comm, hops: int) -> Around:
    """The vertices within `hops` + 1 edges of the worker's own, and the in-neighbours of those within `hops`.
    Collective, outside the train clock.
    """
    names = Names.gathered(comm, shard, np.asarray(shard.degrees))
    lists = lists_of(shard, local=False)
    expander = Expander(names, Exchanged(comm, lists) if comm.size > 1 else Own(comm, lists))
    first = int(names.bounds[comm.rank])
    frontier = own = np.arange(first, first + shard.num_inner, dtype=np.int32)
    seen = np.zeros(len(names.ids), bool)
    listed, found, asked = [], [], 0
    # Hop by hop each owner is asked for the in-neighbours of the vertices that the last hop has found.
    for hop in range(hops + 1):
        seen[frontier] = True
        listed.append(frontier)
        found.append(expander.choose(frontier, 0, ALL, -1))
        if hop:  # per vertex its id and the length of its list, and the lists
            asked += 8 * len(frontier) + found[-1].edges.nbytes
        frontier = np.unique(found[-1].edges[:, 0])
        frontier = frontier[~seen[frontier]]
    seen[frontier] = True
    seen[own] = False
    # Own vertices come first; all others follow by name, and so by owner and row.
    every = np.concatenate([own, np.flatnonzero(seen).astype(np.int32)])
    place = np.empty(len(names.ids), np.int32)
    place[every] = np.arange(len(every))
    edges = _block(np.concatenate(listed), Chosen.joined(found), place, len(every))
    ids, degrees = names.ids[every], names.degrees[every]
    wide = dataclasses.replace(
        shard, inner=ids, degrees=degrees, halo=ids, halo_degrees=degrees, inner_edges=edges, halo_edges=edges
    )
    others = every[len(own) :]
    owners = names.owners(others)
    return Around(wide, len(own), owners, others - names.bounds[owners], asked)


def _block(listed: np.ndarray, found: Chosen, place: np.ndarray, count: int) -> Csr:
    """A block [count, count] of the lists of the vertices `listed`; its rows and columns are by `place`."""
    rows = place[listed]
    edges = found.of(np.argsort(rows)).edges
    lengths = np.zeros(count, np.int64)
    lengths[rows] = found.taken
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    weights = np.ascontiguousarray(edges[:, 1]).view(np.float32) if edges.shape[1] > 1 else None
    indptr = indptr.astype(np.int32 if len(edges) < 2**31 else np.int64)
    return Csr(indptr, place[edges[:, 0]], count, weights)


class Extension:
    """The rows that each layer takes and gives, and the exchange that brings the features of other workers'
    vertices that layer 0 takes.

    choose   choose(layer, wanted, depth), called for layers L-1 to 1, decides which of the remote rows
             `wanted` [k] of N_l (places in `of`) are computed here. It raises `depth` [u] to l or more for
             these, and to what lower layers must compute for them, if that shall not be fetched: a row is in
             C_l where its depth is at least l
    rows     for `ComputesOthers.rows_of_layers`
    others   by layer: how many rows of C_l are other workers'
    fetched  by layer: rows of F_l of all workers; where there are none, nobody needs to ask
    """

    def __init__(
        self,
        of: Around,
        layers: int,
        needed: bool,
        comm: Comm,
        choose: Callable[[int, np.ndarray, np.ndarray], None],
    ):
        self.comm, own, self._structure = comm, of.own, of.asked
        train = np.asarray(of.shard.train)
        depth = np.full(of.edges.num_rows, -1)
        depth[:own] = np.where(train, layers, -1) if needed else layers
        halos: list[np.ndarray] = []
        asked: list[tuple[np.ndarray, list[int], list[int]]] = []
        # From the last layer back: the rows of N_l; which remote ones are computed here; the rest, F_l, is
        # asked of the owners, who must then compute what others ask of them.
        for layer in reversed(range(layers)):
            sources = touched(of.edges, depth > layer)
            depth[:own][sources[:own] & (depth[:own] < layer)] = layer
            if layer:
                choose(layer, own + np.flatnonzero(sources[own:] & (depth[own:] < layer)), depth)
            halos.append(own + np.flatnonzero(sources[own:] & (depth[own:] < layer)))
            asked.append(_told(comm, of, halos[-1]))
            self._raise(depth, asked[-1][0], layer)
        kept = own + np.flatnonzero(depth[own:] >= 0)  # rows of layer 0 whose features are fetched
        theirs, send, receive = _told(comm, of, kept)
        self._raise(depth, theirs, 0)
        halos, asked = halos[::-1], asked[::-1]
        # Numbers of rows over all workers, so that all know which exchanges are empty.
        counted = np.array([*map(len, halos), len(kept)], np.int64)
        *self.fetched, self._kept = comm.gathered(counted).reshape(comm.size, -1).sum(0).tolist()
        order, counts, place = ordered(depth, layers)
        device = comm.device
        plans = [HaloPlan(torch.from_numpy(place[rows]).to(device), s, r) for rows, s, r in asked]
        self.rows = NeededRows(order, counts, halos, plans)
        self.plan = HaloPlan(torch.from_numpy(place[theirs]).to(device), send, receive)
        self.others = [int((order[:count] >= own).sum()) for count in counts]
        self._places = torch.from_numpy(place[kept]).to(device)  # in layer 0's rows, of those that come so

    @staticmethod
    def _raise(depth: np.ndarray, rows: np.ndarray, layer: int) -> None:
        """Own rows that others fetch are computed, however little this worker needs of them."""
        depth[rows] = np.maximum(depth[rows], layer)

    def record(self, recorder: Recorder, epoch: int) -> None:
        """Metrics of an epoch: rows computed for others, and once the bytes of asking for edges."""
        if epoch == 0:
            recorder.metric("structure_bytes", self._structure)
        for layer in range(1, len(self.others) - 1):
            recorder.metric("replicated", self.others[layer], layer)

    def fill(self, x: torch.Tensor, fetch: Callable[[HaloPlan, torch.Tensor], torch.Tensor]) -> None:
        """Write the features of other workers' vertices into layer 0's rows x [counts[0], f0]; `fetch` gives
        those that a plan brings. Collective."""
        if self._kept:  # by anybody
            fetched = fetch(self.plan, x)
            x.index_copy_(0, self._places, fetched)
            self.comm.recorder.work(moved(fetched, of=len(x)))


def _told(comm: Comm, of: Around, wanted: np.ndarray) -> tuple[np.ndarray, list[int], list[int]]:
    """Tell owners which of their rows this worker wants; outside the train clock. Returns the own rows that
    others want, grouped by who wants them, and how many go to each worker and come from it."""
    at = wanted - of.own
    receive = np.bincount(of.owners[at], minlength=comm.size)
    theirs = comm.tell(np.split(of.rows[at], np.cumsum(receive)[:-1]), torch.int64)
    return np.concatenate(theirs), [len(each) for each in theirs], receive.tolist()
