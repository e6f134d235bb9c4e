"""What is published about each real graph, and the parameters that make its twin agree with it."""

from __future__ import annotations

from dataclasses import dataclass

from harness.data.sets import SETS


@dataclass(frozen=True)
class Published:
    """One published number, and where it stands. Statistics of a partition (`halo_ratio`, `replication`) have
    `parts`, the number of workers."""

    statistic: str
    value: float
    source: str
    parts: int = 0


@dataclass(frozen=True)
class Spec:
    """A real graph's size and the knobs of its twin.

    vertices, edges      edges are directed: an undirected edge counts twice
    split                training, validation and test vertices of the real graph; what is left over has no
                         label
    tail                 exponent of the degree density's power-law tail
    least                smallest target degree
    largest              largest target degree at scale 1
    far, near            a (blocks, share) per level: the share of the edges that join vertices of the same
                         one of `blocks` equal intervals; at far levels only bridge vertices are joined
    district             share of the edges drawn inside one class and one block of the finest level of `near`
                         (what is left of 1 is drawn inside a leaf community)
    leaf                 vertices of a leaf community
    bridges              share of the vertices that have distant edges
    hubs                 how much likelier a vertex of high degree is a bridge; 0: no likelier (see
                         `twin._degrees`)
    skew                 class c's share of the vertices is proportional to (c + 1) ** -skew
    label_noise          share of the vertices whose label is drawn anew from the class shares
    noise_seen           features show the redrawn label (else they go on showing the community's)
    confused             share of the leaf communities whose features look like another class
    drift                confused communities hold test vertices only (a distribution shift between training
                         and test)
    signal               distance of a class centre from the origin, in standard deviations of the feature
                         noise
    sharpness            multi-label: standard deviation of a topic's log-odds of each label
    labels_each          multi-label: mean number of labels per vertex
    """

    vertices: int
    edges: int
    features: int
    classes: int
    split: tuple[int, int, int]
    published: tuple[Published, ...]
    tail: float = 3.0
    least: float = 1.0
    largest: int = 10_000
    far: tuple[tuple[int, float], ...] = ((1, 0.05),)
    near: tuple[tuple[int, float], ...] = ((24, 0.2),)
    district: float = 0.35
    leaf: int = 500
    bridges: float = 0.5
    hubs: float = 1.0
    skew: float = 0.7
    label_noise: float = 0.0
    noise_seen: bool = True
    confused: float = 0.0
    drift: bool = False
    signal: float = 1.0
    multilabel: bool = False
    sharpness: float = 2.0
    labels_each: float = 5.0

    @property
    def mean_degree(self) -> float:
        return self.edges / self.vertices


def _halo(table: str, inner: list[float], boundary: list[float]) -> tuple[Published, ...]:
    return tuple(Published("halo_ratio", b / i, table, p) for p, i, b in zip((4, 6, 8), inner, boundary))


def _size(name: str) -> tuple[int, int, int, int]:
    """Vertices, edges, features and classes of a real graph whose files can be read here."""
    known = SETS[name]
    return known.vertices, known.edges, known.features, known.classes


_PSC = "PSC-GCN Table I"
_REAL = "measured on the real graph"
_EBV = "CDFGNN Table 3, EBV gamma=0"
_EBV_REDDIT = _EBV + " (stands in the row of gamma=0.1, read as swapped"

SPECS: dict[str, Spec] = {
    "reddit": Spec(
        *_size("reddit"), (153_431, 23_831, 55_703), (
            *_halo(_PSC, [58.2, 38.8, 29.1], [94.9, 89.4, 90.7]),
            Published("replication", 3.0860, _EBV_REDDIT + ", of reddit2's edges)", 4),
            Published("homophily", 0.756, "literature"),
            Published("gcn", 0.9530, "CaPGNN Table 7 (validation, Vanilla x4)"),
            Published("gcn", 0.9701, "PSC-GCN Table II (test)"),
        ),
        tail=3.6, largest=21_657,
        far=((1, 0.029),), near=((24, 0.25),), district=0.15, leaf=1200, bridges=0.6, hubs=0.0,
        confused=0.05, signal=3.0,
    ),
    "reddit2": Spec(
        *_size("reddit2"), (153_932, 23_699, 55_334), (
            Published("replication", 3.0860, _EBV_REDDIT + ")", 4),
            Published("homophily", 0.78, "literature"),
            Published("gcn", 0.933, "literature (GraphSAINT paper, GCN)"),
        ),
        tail=3.0, least=72.0, largest=10_000,
        far=((1, 0.03),), near=((24, 0.19),), district=0.15, leaf=600, bridges=0.6, hubs=0.0,
        label_noise=0.06, confused=0.14, signal=3.0,
    ),
    "flickr": Spec(
        *_size("flickr"), (44_625, 22_312, 22_313), (
            Published("homophily", 0.319, "literature"),
            Published("gcn", 0.4688, "CaPGNN Table 7 (validation, Vanilla x4)"),
        ),
        tail=2.6, largest=5_425,
        leaf=200,
        skew=1.0, label_noise=0.64, noise_seen=False, signal=1.0,
    ),
    "yelp": Spec(
        *_size("yelp"), (537_635, 71_685, 107_527), (
            *_halo(_PSC, [179.2, 119.5, 89.6], [120.6, 124.7, 115.5]),
            Published("gcn", 0.6512, "PSC-GCN Table II (test, Full-graph)"),
            Published("gcn", 0.4155, "CaPGNN Table 7 (validation, Vanilla x4)"),
        ),
        tail=2.5, largest=5_000,
        far=((1, 0.28),), near=((24, 0.15),), leaf=300, bridges=0.27, hubs=2.0,
        multilabel=True, skew=1.0, labels_each=9.4, sharpness=8.0, signal=3.5,
    ),
    "amazon-products": Spec(
        *_size("amazon-products"), (1_334_466, 78_498, 156_996), (
            Published("gcn", 0.3765, "CaPGNN Table 7 (validation, Vanilla x4)"),
        ),
        tail=2.5, largest=50_000,
        leaf=1000,
        multilabel=True, skew=1.0, labels_each=4.0, sharpness=3.8, signal=5.0,
    ),
    "corafull": Spec(
        *_size("corafull"), (11_876, 3_959, 3_958), (
            Published("homophily", 0.567, "literature"),
            Published("gcn", 0.6746, "CaPGNN Table 7 (validation, Vanilla x4)"),
        ),
        tail=3.2, largest=297,
        near=((24, 0.06),), district=0.1, leaf=60,
        label_noise=0.24, confused=0.45, signal=5.5,
    ),
    "coauthor-physics": Spec(
        *_size("coauthor-physics"), (20_696, 6_899, 6_898), (
            *(Published("halo_ratio", value, _REAL, parts)
              for parts, value in ((4, 0.5694), (6, 0.8260), (8, 0.9943))),
            Published("replication", 2.0217, _REAL, 4),
            Published("replication", 2.5318, _REAL, 8),
            Published("homophily", 0.931, _REAL),
            Published("gcn", 0.9654, "CaPGNN Table 7 (validation, Vanilla x4)"),
        ),
        tail=3.5, largest=382,
        far=((1, 0.135),), near=((24, 0.0),), district=0.15, leaf=100, bridges=0.34, hubs=0.0,
        skew=1.1, confused=0.03, signal=2.6,
    ),
    "ogbn-arxiv": Spec(
        *_size("ogbn-arxiv"), (90_941, 29_799, 48_603), (
            Published("homophily", 0.655, "literature"),
            Published("gcn", 0.7174, "OGB leader board (test)"),
            Published("no_graph", 0.5550, "OGB leader board (test, MLP)"),
        ),
        tail=2.8, largest=13_161,
        near=((24, 0.03),), district=0.1, leaf=150,
        skew=1.0, label_noise=0.2, confused=0.18, signal=2.6,
    ),
    "ogbn-products": Spec(
        *_size("ogbn-products"), (196_615, 39_323, 2_213_091), (
            *_halo(_PSC, [612.3, 408.2, 306.1], [271.3, 245.3, 208.8]),
            Published("replication", 3.1788, _EBV, 8),
            Published("homophily", 0.808, "literature"),
            Published("gcn", 0.7894, "PSC-GCN Table II (test, Full-graph)"),
            Published("gcn_val", 0.9177, "CaPGNN Table 7 (validation, Vanilla x4)"),
            Published("no_graph", 0.6106, "OGB leader board (test, MLP)"),
        ),
        tail=2.8, largest=17_481,
        far=((1, 0.032),), near=((24, 0.34),), district=0.08, leaf=800, bridges=0.28, hubs=0.0,
        skew=1.2, label_noise=0.04, confused=0.36, drift=True, signal=3.8,
    ),
    "ogbn-proteins": Spec(
        *_size("ogbn-proteins"), (86_619, 21_236, 24_679), (),
        multilabel=True,
    ),
    "ogbn-papers100m": Spec(
        *_size("ogbn-papers100m"), (1_207_179, 125_265, 214_338), (
            Published("replication", 3.6503, _EBV, 16),
            Published("gcn", 0.6329, "literature (OGB, SGC)"),
            Published("no_graph", 0.4724, "OGB leader board (test, MLP)"),
        ),
        tail=2.8, largest=251_471,
        district=0.1, leaf=300,
        skew=0.8, label_noise=0.25, confused=0.18, signal=4.6,
    ),
    "friendster": Spec(
        *(65_608_366, 3_612_134_270, 64, 32), (39_365_020, 13_121_673, 13_121_673), (
            Published("replication", 3.7237, _EBV, 16),
        ),
        tail=2.25, largest=5_214,
        leaf=500,
        signal=1.5,
    ),
}  # fmt: skip
