"""`halobench fidelity [NAME...] [--scale S] [--json]`.

How near the twins are to the published values: each is measured on the generated graph and printed beside the
published one with its source. A mark stands where they differ by more than 10 %. What a smaller scale must
change (vertices, edges) is divided by the scale.
"""

import json
import math
import time
from collections.abc import Callable, Sequence

import numpy as np
from rich.table import Table

from harness.base import tables
from harness.base.errors import at_least, choice
from harness.base.subcommand import Parser, command
from harness.base.terminal import unfolded
from harness.data import twin
from harness.data.graph import Graph
from harness.data.twin_specs import SPECS, Published, Spec
from harness.dev.fidelity import measure
from harness.dev.fidelity.measure import quick_scale

TOLERANCE = 0.10
COSTLY = ("halo_ratio", "replication", "gcn", "no_graph")


@command("halobench fidelity")
def main(words: list[str], program: str) -> None:
    parser = Parser(prog=program, description=__doc__.partition("\n\n")[2])
    parser.add_argument("names", nargs="*", metavar="NAME", help="twins; all of them by default")
    parser.add_argument(
        "--scale", type=float, help="of every twin; by default what leaves about 6 million edges"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the generator")
    parser.add_argument(
        "--epochs", type=int, default=60, help="of the GCN and of the model without the graph"
    )
    parser.add_argument(
        "--skip", nargs="*", default=[], choices=COSTLY, help="costly statistics to leave out"
    )
    parser.add_argument("--json", action="store_true", help="one JSON list instead of tables")
    options = parser.parse_args(words)
    console = unfolded()
    rows: list[dict] = []
    at_least("--epochs", options.epochs, 1)
    names = [name.removeprefix("twin/") for name in options.names] or twin.names()
    for name in names:  # before any is generated, which takes a while
        choice("twin", name, twin.names())
    for name in names:
        found = compare(
            name, scale=options.scale, seed=options.seed, epochs=options.epochs, skip=options.skip
        )
        rows += found
        if not options.json:
            console.print(_table(name, found), "")
    if options.json:
        print(json.dumps(rows, indent=1))


def compare(
    name: str, *, scale: float | None = None, seed: int = 0, epochs: int = 60, skip: Sequence[str] = ()
) -> list[dict]:
    """One row per published value, with keys twin, scale, seed, generated_s, statistic, parts, published,
    measured, ratio, off and source; and a row of "no_graph", whose `published` and `ratio` may be None.

    skip   costly statistics to leave out, of COSTLY
    """
    scale = quick_scale(name) if scale is None else scale
    started = time.perf_counter()
    graph = twin.generate(name, scale=scale, seed=seed)
    seconds = time.perf_counter() - started
    spec = SPECS[name]
    trained: dict[bool, tuple[float, float]] = {}
    figures = [*_sizes(spec), *spec.published]
    if not any(figure.statistic == "no_graph" for figure in figures):
        # Measured for every twin: where neighbours do not matter, a system that uses none would look like a
        # working one.
        figures.append(Published("no_graph", math.nan, "no published value"))
    rows = []
    for figure in figures:
        if figure.statistic.removesuffix("_val") in skip:
            continue
        value = _measure(graph, figure, scale, epochs, trained)
        ratio, known = value / figure.value, not math.isnan(figure.value)
        rows.append(
            {
                "twin": graph.name,
                "scale": scale,
                "seed": seed,
                "generated_s": round(seconds, 2),
                "statistic": figure.statistic,
                "parts": figure.parts or None,
                "published": figure.value if known else None,
                "measured": value,
                "ratio": ratio if known else None,
                "off": abs(ratio - 1.0) > TOLERANCE,
                "source": figure.source,
            }
        )
    return rows


def _sizes(spec: Spec) -> list[Published]:
    table = "dataset tables (docs/twins.md)"
    return [
        Published("vertices", spec.vertices, table),
        Published("directed_edges", spec.edges, table),
        Published("mean_degree", spec.mean_degree, table),
        Published("features", spec.features, table),
        Published("classes", spec.classes, table),
        Published("train_share", spec.split[0] / spec.vertices, "data set's own split"),
    ]


def _measure(graph: Graph, figure: Published, scale: float, epochs: int, trained: dict) -> float:
    if figure.statistic in ("gcn", "gcn_val", "no_graph"):
        use_graph = figure.statistic != "no_graph"
        if use_graph not in trained:
            trained[use_graph] = measure.accuracy(graph, use_graph=use_graph, epochs=epochs)
        return trained[use_graph][0 if figure.statistic == "gcn_val" else 1]
    of: dict[str, Callable[[], float]] = {
        "vertices": lambda: graph.num_vertices / scale,
        "directed_edges": lambda: graph.num_edges / scale,
        "mean_degree": lambda: graph.num_edges / graph.num_vertices,
        "features": lambda: graph.num_features,
        "classes": lambda: (
            graph.num_classes if graph.multilabel else len(np.unique(graph.labels[graph.labels >= 0]))
        ),
        "train_share": lambda: float(graph.train.mean()),
        "homophily": lambda: measure.homophily(graph),
        "halo_ratio": lambda: measure.halo_ratio(graph, figure.parts),
        "replication": lambda: measure.replication(graph, figure.parts),
    }
    return of[figure.statistic]()


def _table(name: str, rows: list[dict]) -> Table:
    scale = rows[0]["scale"]
    note = "" if scale == 1.0 else " (measured at a reduced scale; vertices and edges are divided by it)"
    headings = ("statistic", "published", "twin", "ratio", "", "source")
    title = f"twin/{name} at scale {scale:.4g}{note}"
    table = tables.shown(headings, words=("statistic", "", "source"), title=title)
    for row in rows:
        label = row["statistic"].replace("_", " ") + (f", {row['parts']} parts" if row["parts"] else "")
        ratio = "-" if row["ratio"] is None else f"{row['ratio']:.3f}"
        published = "-" if row["published"] is None else _figure(row["published"])
        mark = "off > 10 %" if row["off"] else ""
        table.add_row(label, published, _figure(row["measured"]), ratio, mark, row["source"])
    return table


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 or float(value).is_integer() else f"{value:.4g}"
