"""From a dataset block to a validated Graph, and the fingerprint under which it may be cached."""

import warnings
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from harness.base.bounds import SEED, number, word
from harness.base.errors import InputError, choice
from harness.base.terminal import counted
from harness.data import npz, real, splits
from harness.data.config import LABELS_PER_CLASS, name_of
from harness.data.dataset import Dataset, identities
from harness.data.graph import Graph, validate
from harness.data.partition.shard import Csr
from harness.data.raw import Raw
from harness.data.sets import SETS

# Keys that only some sources read.
USED_BY = {
    "path": ("npz",),
    "mask": ("real", "npz"),
    "symmetrise": ("real", "npz"),
    "scale": ("twin",),
    "generator_seed": ("twin",),
}
FORMAT = 1  # raise it when a reader, a split or a normalisation begins to give another graph


@dataclass
class Source(Dataset):
    """A dataset of this package: what a config's `dataset` block without a `_target_` describes.

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
        super().__post_init__()
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

    @property
    def changed_note(self) -> str:
        # Raw files of a named data set do not change, and may be elsewhere by now.
        return "a twin that another version of the generator made" if self.source == "twin" else ""

    @property
    def refuses_changed(self) -> bool:
        return self.source == "npz"

    def check_there(self, data_dir: Path) -> None:
        if self.source == "npz":
            npz.names_in(self._file)
        elif self.source == "real":
            real.find(self.name, data_dir.expanduser())

    def load(self, data_dir: Path, seed: int) -> Graph:
        """The graph that the block names, split (by `seed` where the split is drawn) and validated.

        Real data sets are looked for in `data_dir` and downloaded there where they are missing. Raises
        InputError with one sentence where the download fails, or a file or the graph in it cannot be used."""
        self._warn()
        if self.source == "twin":
            from harness.data import twin

            graph, own_split = twin.generate(self.name, scale=self.scale, seed=self.generator_seed), True
        else:
            if self.source == "npz":
                raw = npz.read(self._file, self.symmetrise)
            else:
                paths = real.find(self.name, Path(data_dir).expanduser())
                raw = SETS[self.name].read(*paths, symmetrise=self.symmetrise is not False)
            graph, own_split = self._graph(raw), raw.masks is not None
        if self.split == "low_label":
            masks = splits.low_label(graph.labels, graph.num_classes, seed, self.labels_per_class)
            graph = _with_split(graph, masks)
        elif self.split == "random" or not own_split:
            graph = _with_split(graph, splits.random(graph.labels, seed))
        # Validated before features are normalised, so that a NaN is reported and not spread over its row. The
        # error for a user's own graph names its file, which is where the user has to look.
        validate(graph.replace(name=f'file "{self._file}"') if self.source == "npz" else graph)
        if self.normalise_features:
            _normalise(graph)
        return graph

    graph = load  # which validates, before it normalises features

    @property
    def _file(self) -> Path:
        """The file of `source: npz`, which is refused without one."""
        assert self.path is not None
        return Path(self.path).expanduser()

    def fingerprint(self, data_dir: Path, seed: int) -> dict[str, Any]:
        """Everything that determines what `load` returns, as plain values without absolute paths.

        A missing real data set is downloaded (or reported) here, as in `load`."""
        self._warn()
        read = {f.name for f in fields(self)} - {"path"}
        read -= {key for key, sources in USED_BY.items() if self.source not in sources}
        if self.split != "own":
            read -= {"mask"}
        # A key at its default is left out, so that it could be added without making every graph again.
        if self.split != "low_label" or self.labels_per_class == LABELS_PER_CLASS:
            read -= {"labels_per_class"}
        found: dict[str, Any] = {"format": FORMAT, **{key: getattr(self, key) for key in sorted(read)}}
        own_split = True
        if self.source == "twin":
            from harness.data import twin

            # A twin has no files: the generator's code and this twin's calibration determine it.
            found["generator"] = twin.identity(self.name)
            files: tuple[Path, ...] = ()
        elif self.source == "npz":
            files = (self._file,)
            names = npz.names_in(files[0])
            own_split = set(npz.SPLITS) <= set(names)
            if "edge_weight" in names:
                found["weights"] = True
        else:
            files = real.find(self.name, Path(data_dir).expanduser())
            own_split = SETS[self.name].own_split
        found["files"] = identities(files)
        if self.split != "own" or not own_split:
            found["seed"] = seed
        return found

    def _warn(self) -> None:
        for sentence in self.ignored():
            warnings.warn(sentence, stacklevel=3)

    def _graph(self, raw: Raw) -> Graph:
        """The graph of `raw`, with that one of its own splits which `mask` chooses, or with empty masks where
        it has none."""
        if raw.masks is None:
            train = val = test = np.zeros(len(raw.features), bool)
            if self.mask and self.split == "own":
                raise InputError(
                    f"dataset.mask={self.mask} chooses among own splits, but {self.label} has none:"
                    " leave it at 0"
                )
        else:
            known = len(raw.masks[0])
            if self.split == "own" and self.mask >= known:
                raise InputError(
                    f"dataset.mask={self.mask} is out of range: {self.label} has "
                    f"{counted(known, 'own split')}, give 0 to {known - 1}"
                )
            train, val, test = (masks[min(self.mask, known - 1)] for masks in raw.masks)
        indptr, indices, symmetric, weights = raw.edges
        return Graph(
            name=self.label,
            indptr=indptr,
            indices=indices,
            features=raw.features,
            labels=raw.labels,
            num_classes=raw.num_classes,
            train=train,
            val=val,
            test=test,
            symmetric=symmetric,
            weights=weights,
        )


def _with_split(graph: Graph, masks: splits.Masks) -> Graph:
    return graph.replace(train=masks[0], val=masks[1], test=masks[2])


def _normalise(graph: Graph) -> None:
    """Divide every row of features by its sum, in place; a row of zeros stays."""
    features = graph.features
    with np.errstate(over="ignore"):
        if isinstance(features, Csr):
            features.values = values = features.entries()
            row = np.repeat(np.arange(len(features)), np.diff(features.indptr))
            sums = features.row_sums().astype(np.float32)[row]  # [entries] the sum of each entry's row
        else:
            values, row = features, np.arange(len(features))
            sums = features.sum(axis=1, keepdims=True)
    if values.min(initial=0) < 0:
        lowest = np.unravel_index(np.argmin(values), values.shape)
        raise InputError(
            f"dataset.normalise_features=true divides by the sum of features of 0 or more, but {graph.name} "
            f"has {values[lowest]} at "
            f"vertex {row[lowest[0]]}: leave it false"
        )
    if np.isinf(sums).any():
        raise InputError(
            f"dataset.normalise_features=true divides by sums, but the features of {graph.name} at vertex"
            f" {row[int(np.argmax(np.isinf(sums)))]} have a sum beyond float32: leave it false"
        )
    sums[sums == 0] = 1
    values /= sums
