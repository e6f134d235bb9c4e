"""Vertex-cuts of twins beside the published ones: `halobench fidelity --cuts [NAME...] [--scale S]`.

Published is Table 3 of CDFGNN: four graphs, each cut by EBV (gamma 0 and 0.1), HEP and DNE over the workers
of two hosts. Every cut is measured under both rules that choose a master. `outer share` is Outer over Inner +
Outer; `fit` is Inner + Outer over 2 (RF - 1) V / P, the mean of what a worker sends: 1 where messages are
spread evenly over the workers. Messages, which grow with the graph, are divided by the scale.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rich.table import Table

from harness.base import tables
from harness.base.errors import choice
from harness.data import twin
from harness.data.partition.config import MASTER_RULES
from harness.data.partition.vertexcut import assign_edges, statistics
from harness.data.twin_specs import SPECS
from harness.dev.fidelity.measure import quick_scale

HOSTS = 2
SEED = 1  # of the partitioners that draw


class Printed(NamedTuple):
    """A row of Table 3. `swapped` is an RF that stands in another row and is read as this one's."""

    method: str
    gamma: float
    inner: int
    outer: int
    replication: float
    edge_imbalance: float
    swapped: float | None = None

    @property
    def label(self) -> str:
        return f"EBV, gamma {self.gamma:g}" if self.method == "ebv" else self.method.upper()

    @property
    def knobs(self) -> dict[str, float]:
        """What its partitioner is made with."""
        return {"gamma": self.gamma} if self.method == "ebv" else {}


# Only with these two RFs exchanged does Inner + Outer = 2 (RF - 1) V / P hold, as in the other EBV rows.
_REDDIT = (
    Printed("ebv", 0.0, 104_217, 138_583, 2.9027, 1.0054, swapped=3.0860),
    Printed("ebv", 0.1, 105_412, 117_879, 3.0860, 1.0022, swapped=2.9027),
    Printed("hep", 0.0, 36_662, 52_886, 1.6084, 1.2693),
    Printed("dne", 0.0, 65_578, 118_788, 2.1025, 1.2558),
)
# Workers and rows by twin. The table names one Reddit; both of its twins are held beside it.
TABLE_3: dict[str, tuple[int, tuple[Printed, ...]]] = {
    "reddit2": (4, _REDDIT),
    "reddit": (4, _REDDIT),
    "ogbn-products": (8, (
        Printed("ebv", 0.0, 695_905, 639_459, 3.1788, 1.0002),
        Printed("ebv", 0.1, 952_727, 481_147, 3.3379, 1.0008),
        Printed("hep", 0.0, 143_711, 127_261, 1.3304, 1.2323),
        Printed("dne", 0.0, 367_460, 406_408, 1.9363, 1.1527),
    )),
    "friendster": (16, (
        Printed("ebv", 0.0, 12_395_102, 9_988_776, 3.7237, 1.0002),
        Printed("ebv", 0.1, 19_586_785, 5_465_465, 4.0322, 1.0011),
        Printed("hep", 0.0, 5_794_009, 4_675_810, 1.7048, 1.7760),
        Printed("dne", 0.0, 8_737_134, 11_670_478, 2.3546, 1.7455),
    )),
    "ogbn-papers100m": (16, (
        Printed("ebv", 0.0, 20_438_528, 16_362_561, 3.6503, 1.0000),
        Printed("ebv", 0.1, 32_241_760, 9_924_817, 4.0347, 1.0001),
        Printed("hep", 0.0, 5_826_661, 3_085_959, 1.3144, 2.0204),
        Printed("dne", 0.0, 10_021_186, 13_819_120, 2.1475, 1.3866),
    )),
}  # fmt: skip


def compare(name: str, *, scale: float | None = None, seed: int = 0) -> list[dict[str, Any]]:
    """One row per cut and origin: "printed", "swapped" (with the RF read as this row's) or a rule of masters.

    inner, outer     messages that the worker with most sends per synchronisation, over the scale
    outer_share      outer / (inner + outer)
    replication      RF, replicas per vertex
    fit              (inner + outer) / (2 (RF - 1) V / P)
    edge_imbalance   Edge IF, the largest worker's edges over the mean

    Raises InputError for a twin that the table has not, or a scale out of range.
    """
    choice("twin", name, TABLE_3)
    scale = quick_scale(name) if scale is None else scale
    graph = twin.generate(name, scale=scale, seed=seed)
    workers, table = TABLE_3[name]
    rows: list[dict[str, Any]] = []

    def add(
        cut: Printed, origin: str, inner: float, outer: float, replication: float, edge_imbalance: float
    ) -> None:
        mean = 2 * (replication - 1) * SPECS[name].vertices / workers
        rows.append({
            "twin": graph.name, "scale": scale, "seed": seed, "workers": workers, "hosts": HOSTS,
            "cut": cut.label, "origin": origin, "inner": inner, "outer": outer,
            "outer_share": outer / max(inner + outer, 1), "replication": replication,
            "fit": (inner + outer) / mean, "edge_imbalance": edge_imbalance,
        })  # fmt: skip

    for cut in table:
        add(cut, "printed", cut.inner, cut.outer, cut.replication, cut.edge_imbalance)
        if cut.swapped:
            add(cut, "swapped", cut.inner, cut.outer, cut.swapped, cut.edge_imbalance)
        edges = assign_edges(graph, cut.method, workers, SEED, hosts=HOSTS, **cut.knobs)
        for rule in MASTER_RULES:
            found = statistics(edges, rule)
            inner, outer = found["max_inner"] / scale, found["max_outer"] / scale
            add(cut, rule, inner, outer, found["replication"], found["edge_imbalance"])
    return rows


def table(rows: list[dict[str, Any]]) -> Table:
    first = rows[0]
    title = f"{first['twin']} at scale {first['scale']:.4g}, {first['workers']} workers on {HOSTS} hosts"
    headings = ("cut", "", "inner", "outer", "outer share", "RF", "fit", "Edge IF")
    table = tables.shown(headings, words=("cut", ""), title=title)
    for row in rows:
        table.add_row(
            row["cut"] if row["origin"] == "printed" else "",
            row["origin"] if row["origin"] in ("printed", "swapped") else f"masters={row['origin']}",
            *(f"{row[key]:,.0f}" for key in ("inner", "outer")),
            f"{row['outer_share']:.3f}",
            f"{row['replication']:.4f}",
            f"{row['fit']:.3f}",
            f"{row['edge_imbalance']:.4f}",
            end_section=row["origin"] == MASTER_RULES[-1],
        )
    return table
