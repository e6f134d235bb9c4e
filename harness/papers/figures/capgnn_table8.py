"""CaPGNN's Table 8: what JACA leaves of vanilla's communication, here in bytes, beside the published seconds.

Both systems ask for the rows of every layer (`features=refetch`): 3 layers, hidden 256, 4 workers, group x4.
From the bytes of all layers in epochs 1 to 10, one period of refreshes. The gradients of the weights are
left out: they do not grow with the graph, and would weigh more on a small twin than in print. `cached` is the
share of halo rows that local tiers hold, from the metrics `local_capacity` and `lookups`.
"""

from matplotlib.figure import Figure

from harness.base import tables
from harness.papers.claims.published import entries
from harness.papers.figures.panels import by_epoch
from harness.results.report.style import COLOURS, PARTS, title

# The table's graphs, in the order of the picture.
SHORT = {"reddit": "Rt", "yelp": "Yp", "amazon-products": "As", "ogbn-products": "Os", "flickr": "Fr",
         "corafull": "Cl", "coauthor-physics": "Cs"}  # fmt: skip
WAYS = {"backward": "gradients", "forward": "halo rows"}
COLUMNS = ("graph", "cached", *WAYS.values(), "bytes", "published", "difference")


def table(groups) -> str:
    """The picture's values, in %, one row per graph: of vanilla's bytes and of its published seconds."""
    rows = []
    for name, ours in shares(groups).items():
        parts, said = [ours[way] for way in WAYS], published(name)
        beside = ("-", "-") if said is None else (f"{said:.1f}", f"{sum(parts) - said:+.1f}")
        values = [f"{value:.1f}" for value in (*parts, sum(parts))]
        rows.append((name, f"{ours['cached']:.0f}", *values, *beside))
    return tables.markdown(COLUMNS, rows)


def draw(groups):
    drawn = shares(groups)
    figure = Figure(figsize=(9.6, 4.4), layout="constrained")
    ax, colours = figure.subplots(), (PARTS["compute"], COLOURS[4])
    bottom = [0.0] * len(drawn)
    places = [at - 0.2 for at in range(len(drawn))]
    for (way, what), colour in zip(WAYS.items(), colours):
        heights = [ours[way] for ours in drawn.values()]
        bars = ax.bar(places, heights, 0.36, bottom, color=colour, label=f"bytes: {what}")
        bottom = [low + height for low, height in zip(bottom, heights)]
    ax.bar_label(bars, [f"{whole:.0f}" for whole in bottom], padding=2)
    said = {at + 0.2: share for at, name in enumerate(drawn) if (share := published(name)) is not None}
    bars = ax.bar(list(said), list(said.values()), 0.36, color=PARTS["comm"], label="published: seconds")
    ax.bar_label(bars, fmt="{:.0f}", padding=2)
    ax.set_xticks(range(len(drawn)), list(drawn))
    ax.grid(axis="x", visible=False)
    ax.set_ylabel("with JACA, % of vanilla")
    ax.legend(frameon=False, fontsize=9)
    of = groups[0].dataset
    if len(drawn) > 1:
        what = "twins (synthetic graphs)" if all(name.startswith("twin/") for name in drawn) else "graphs"
        scales = dict.fromkeys(" ".join(group.dataset.split()[1:]) for group in groups)
        of = ", ".join([f"{len(drawn)} {what}", *filter(None, scales)])
    title(figure, "What JACA leaves of vanilla's communication", of, groups, "")
    return figure


def published(graph: str) -> float | None:
    """Seconds of communication in 200 epochs, GCN, with JACA as a share of vanilla's, in %."""
    name = SHORT.get(graph.removeprefix("twin/"))
    if name is None:
        return None
    rows = entries()["capgnn_table8"].published["values"]["GCN"]
    whole, cached = (rows[row][name][1] for row in ("Vanilla", "+JACA"))
    return 100 * cached / whole


def shares(groups) -> dict[str, dict[str, float]]:
    """By graph, in %: JACA's `backward` and `forward` bytes, as shares of all of vanilla's; and `cached`, the
    share of halo rows that local tiers hold."""
    runs = {(group.first.summary["dataset"], group.first.name): group.first for group in groups}
    found = {}
    order = [f"{prefix}{name}" for name in SHORT for prefix in ("", "twin/")]
    place = lambda graph: order.index(graph) if graph in order else len(order)  # noqa: E731
    for graph in sorted(dict.fromkeys(graph for graph, _ in runs), key=place):
        mine = sent(runs[graph, "capgnn"])
        whole = sum(sent(runs[graph, "vanilla"]).values())
        held = by_epoch(runs[graph, "capgnn"], "local_capacity").iloc[-1].sum()
        asked = by_epoch(runs[graph, "capgnn"], "lookups").iloc[-1].iloc[0]
        found[graph] = {**{way: 100 * mine[way] / whole for way in WAYS}, "cached": 100 * held / asked}
    return found


def sent(run) -> dict[str, float]:
    """Bytes of all layers after epoch 0, by direction."""
    comm = run.trace.comm
    layers = comm[(comm["epoch"] > 0) & (comm["layer"] >= 0)].groupby("direction")["bytes"].sum()
    return {way: float(layers.get(way, 0.0)) for way in WAYS}
