"""The `dataset` block: which graph, from where, split how."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from harness.base.bounds import SEED, number, word
from harness.base.errors import InputError, choice
from harness.data.sets import SETS

LABELS_PER_CLASS = 20  # vertices that train under low_label where nothing else is said
# Keys that only some sources read.
USED_BY = {
    "path": ("npz",),
    "mask": ("real", "npz"),
    "symmetrise": ("real", "npz"),
    "scale": ("twin",),
    "generator_seed": ("twin",),
}


UNNAMED = "npz"  # the name that conf/dataset/npz.yaml gives any graph of one's own


def name_of(block: Mapping[str, Any]) -> str:
    """What people call the graph of a `dataset` block: its name; for `dataset=npz` without a name of its own,
    the name of the file without its ending."""
    name, path = str(block["name"]), block.get("path")
    return Path(path).stem if name == UNNAMED and block.get("source") == "npz" and path else name


def check_name(name: str) -> None:
    """InputError for a name that no folder of runs can have."""
    if not name.strip("."):
        raise InputError(f'name="{name}" names no graph: give the data set\'s name')


@dataclass
class DatasetConfig:
    """A graph to train on.

    name          the data set; for a twin the real graph it imitates; for npz what tables shall call the
                  graph ("npz": the name of its file, without the ending)
    source        "real" (raw files of torch_geometric or ogb), "npz" (bring your own, docs/data.md), "twin"
                  (generated)
    split         "own" (the data set's; random where it has none), "random" (60/20/20) or "low_label"
                  (`labels_per_class` training and 30 validation vertices per class, the rest test); the last
                  two are drawn by the run's seed
    mask          which of the data set's own splits, where it has several (tolokers: 0 to 9)
    path          source npz: the file
    symmetrise    source real or npz: true adds the reverse of every edge, as torch_geometric does for its npz
                  formats and full-batch papers do for ogbn-arxiv; false keeps edges as stored; null is true
                  for real data sets, and for npz unless the file says that it is `directed`
    scale         source twin: vertices as a share of the real graph's, at the same mean degree
    generator_seed   source twin: the seed of the generator; each seed makes another twin of the same graph
    normalise_features   divide each vertex's features by their sum, as the GCN reference does on Planetoid's
                         graphs
    labels_per_class   split low_label: training vertices of each class. No data set's yaml has this key, so
                       that run folders keep their names: give it as +dataset.labels_per_class=N
    """

    name: str
    source: str = word("real", "npz", "twin")
    split: str = word("own", "random", "low_label")
    mask: int = number(0)
    path: str | None = None
    symmetrise: bool | None = None
    scale: float = number(1.0, 0, 1, above=True)
    generator_seed: int = number(0, 0, SEED)
    normalise_features: bool = False
    labels_per_class: int = number(LABELS_PER_CLASS, 1)

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.source == "real":
            choice("name", self.name, SETS)
        if self.source == "npz" and not self.path:
            raise InputError("path is not given: add dataset.path=GRAPH.npz")
        if self.source == "twin":
            from harness.data import twin  # not before: nothing else here needs compiled loops

            choice("name", self.name, twin.SPECS)
            # Not a public function, since any other code in twin.py would make another identity of each twin.
            twin._scaled(self.name, twin.SPECS[self.name], self.scale)

    @property
    def label(self) -> str:
        """What run folders and messages call the graph."""
        if self.source == "twin":
            return f"twin/{self.name}"
        return name_of({"name": self.name, "source": self.source, "path": self.path})

    def ignored(self) -> list[str]:
        """One sentence for each key that was set but is not read with this source and split."""
        defaults = {f.name: f.default for f in fields(self)}
        said = [
            f'dataset.{key}={getattr(self, key)} is ignored: source "{self.source}" does not read it'
            for key, sources in USED_BY.items()
            if self.source not in sources and getattr(self, key) != defaults[key]
        ]
        if self.mask and self.split != "own" and self.source in USED_BY["mask"]:
            said.append(f'dataset.mask={self.mask} is ignored: split "{self.split}" draws its own')
        if self.labels_per_class != LABELS_PER_CLASS and self.split != "low_label":
            said.append(
                f"dataset.labels_per_class={self.labels_per_class} is ignored: split"
                f' "{self.split}" does not count labels per class'
            )
        return said
