"""RAPA (CaPGNN, section 4.3): halo vertices leave the subgraphs of devices that are too slow for them; then
training.

G_i holds the vertices of part i (inner), its halo H_i (kept[i]; at first every remote vertex with an edge
into part i) and the edges into inner vertices: those from inner vertices, and E_outer from H_i. Self-loops
are no edges here. With P parts, P devices, and a hat for a device's time over the slowest's (1 for all where
no device states that time)

    T_comm_i = |E_outer_i| ((h2d^_i + d2h^_i)(1 - 1/P) + idt^_i / P)                                      (13)
    T_comp_i = alpha |E_all_i| spmm^_i + (1 - alpha) |V_inner_i| mm^_i                                    (14)
    lambda_i = T_comp_i + T_comm_i                                                                        (15)
    room_i:  |V_i| M_vertex + |E_i| M_edge + |V_i| f_dim 4 + beta <= M_i     (V_i inner and halo; no M_i:
             always)

    S_k = (sum_{j in Nout(k)} (Din_j Dout_k)^-1/2 + sum_{j in Nin(k)} (Dout_j Din_k)^-1/2) C_k            (16)

for k in H_i: in-degrees in the original graph, C_k = R(k) of (2) in the partition as given: how many halos
hold k, and neighbours and out-degrees among the vertices of G_i, edges between two halo vertices apart. Edges
from inner to halo vertices have a say here only; G_i as defined above has none, so read by the letter the
second sum would be empty.

Algorithm 3, one sweep, for i from the weakest device (the paper does not say how weakness is measured: the
one that pays most for one inner vertex and one outer edge together, by (13) and (14); ties by rank): with
lambda_i and the mean of lambda as they are now,

    lambda_i <= mean and room_i: r_i = 1, nothing else. Otherwise halo vertices leave in ascending order of
    S_k (ties by owner, then by vertex) until lambda_i <= (lambda_i at the start + mean) / 2 and there is
    room, or H_i is empty; if none left, r_i = 1.

As printed, the loop runs while lambda_i > mean, so that a device without room whose cost is below the mean
would keep everything; here it goes on while there is no room as well, which is what the constraint in (15)
asks for.

Algorithm 2: sweep until std(lambda) < threshold mean(lambda) (population std), or every r_i = 1.

Training on what is kept: the edges that are left keep their weight in Â (degrees "global"), or degrees are
counted again in the union of the G_i ("local"). Forward and backward use the same edges. pipeline: what layer
l >= 0 aggregates of H_t[l] of other parts in epoch t is H_{t-1}[l]; in epoch 0, H_0[l]. Their gradients go to
the owners in the same epoch.
"""

from dataclasses import dataclass

import numpy as np

from tests.oracles import split
from tests.oracles.bytes import FLOAT
from tests.oracles.dense import History, Weights, adjacency, operator_of


@dataclass
class Partition:
    """kept [P, V] at the end; and before every sweep and after the last: lambda [P], edges [P],
    vertices [P].
    """

    kept: np.ndarray
    costs: list[np.ndarray]
    edges: list[np.ndarray]
    vertices: list[np.ndarray]


def relative(devices: list[dict], name: str) -> np.ndarray:
    if all(device.get(name) is None for device in devices):
        return np.ones(len(devices))
    times = np.array([device[name] for device in devices])
    return times / times.max()


class Rapa:
    def __init__(self, graph, assignment, devices, *, alpha, threshold, vertex_bytes, edge_bytes, beta_mb):
        self.a, self.inner = (
            adjacency(graph),
            np.array([assignment == i for i in range(int(assignment.max()) + 1)]),
        )
        self.devices, self.features = devices[: len(self.inner)], graph.num_features
        self.threshold, self.assignment = threshold, assignment
        self.vertex_bytes, self.edge_bytes, self.beta = vertex_bytes, edge_bytes, beta_mb * 2**20
        self.kept = np.array([(self.a[rows].sum(axis=0) > 0) & ~rows for rows in self.inner])
        self.ratio = self.kept.sum(axis=0)  # (2)
        h2d, d2h, idt, spmm, mm = (
            relative(self.devices, f"{name}_s") for name in ("h2d", "d2h", "idt", "spmm", "mm")
        )
        parts = len(self.inner)
        self.outer_price, self.edge_price = (h2d + d2h) * (1 - 1 / parts) + idt / parts, alpha * spmm
        self.vertex_price = (1 - alpha) * mm

    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        """|E_all|, |E_outer| by part."""
        pairs = list(zip(self.inner, self.kept))
        outer = np.array([self.a[np.ix_(rows, halo)].sum() for rows, halo in pairs])
        return np.array([self.a[np.ix_(rows, rows)].sum() for rows in self.inner]) + outer, outer

    def costs(self) -> np.ndarray:
        """lambda, by (13), (14) and (15)."""
        every, outer = self.edges()
        return every * self.edge_price + self.inner.sum(axis=1) * self.vertex_price + outer * self.outer_price

    def vertices(self) -> np.ndarray:
        return (self.inner | self.kept).sum(axis=1)

    def room(self, i: int) -> bool:
        if self.devices[i].get("memory_gb") is None:
            return True
        each = self.vertex_bytes + self.features * FLOAT
        need = self.vertices()[i] * each + self.edges()[0][i] * self.edge_bytes + self.beta
        return need <= self.devices[i]["memory_gb"] * 2**30

    def scores(self, i: int) -> np.ndarray:
        """(16) of every vertex; it means something in H_i."""
        inner, everyone = self.inner[i], self.inner[i] | self.kept[i]
        inside = self.a * ((np.outer(inner, everyone) | np.outer(everyone, inner)) > 0)  # [v, u]: u -> v
        d_in, d_out = self.a.sum(axis=1), inside.sum(axis=0)
        e = np.divide(inside, np.sqrt(np.outer(d_in, d_out)), out=np.zeros_like(inside), where=inside > 0)
        return (e.sum(axis=0) + e.sum(axis=1)) * self.ratio

    def sweep(self) -> bool:
        """Algorithm 3; whether r = 1."""
        weakness = self.vertex_price + self.edge_price + self.outer_price
        done = np.zeros(len(self.inner), bool)
        for i in np.argsort(-weakness, kind="stable"):
            start, mean = self.costs()[i], self.costs().mean()
            leaving = []
            if start > mean or not self.room(i):
                score = self.scores(i).round(12)  # a tie is a tie, whatever the rounding
                leaving = sorted(
                    np.flatnonzero(self.kept[i]), key=lambda k: (score[k], self.assignment[k], k)
                )
            done[i] = not leaving
            for k in leaving:
                self.kept[i, k] = False
                if self.costs()[i] <= (start + mean) / 2 and self.room(i):
                    break
        return bool(done.all())

    def partition(self) -> Partition:
        """Algorithm 2."""
        passed = Partition(self.kept, [self.costs()], [self.edges()[0]], [self.vertices()])
        while True:
            stuck, costs = self.sweep(), self.costs()
            passed.costs.append(costs)
            passed.edges.append(self.edges()[0])
            passed.vertices.append(self.vertices())
            if stuck or costs.std() < self.threshold * costs.mean():
                return passed


def operator_on(graph, assignment, kept, model: str, normalisation: str, degrees: str) -> np.ndarray:
    """Â without the edges of the halo vertices that left."""
    assert degrees in ("global", "local"), degrees
    a = adjacency(graph)
    # [v, u]: u is in the subgraph that v is inner to
    left = np.array([kept[i] | (assignment == i) for i in assignment])
    if degrees == "local":
        return operator_of(np.where(left, a, 0.0), model, normalisation)
    return np.where(left, operator_of(a, model, normalisation), 0.0)


def train(
    graph, assignment: np.ndarray, weights: Weights, kept: np.ndarray, *, pipeline: bool = False,
    degrees: str = "global", **how,
) -> History:  # fmt: skip
    case = split.Training(graph, assignment, weights, **how)
    on_kept = operator_on(graph, assignment, kept, case.model, case.normalisation, degrees)
    own, remote = split.split(on_kept, assignment)
    before: dict[int, np.ndarray] = {}

    def received(l, h):
        used = before.get(l, h) if pipeline else h
        before[l] = h
        return remote @ used

    return case.run(lambda _, weights: case.step(weights, received, lambda l, e: remote.T @ e, own))
