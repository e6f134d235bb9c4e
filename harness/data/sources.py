"""From a dataset block to a validated Graph, and the fingerprint under which it may be cached."""

import dataclasses
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.base.errors import InputError
from harness.base.terminal import counted
from harness.data import npz, real, splits
from harness.data.config import LABELS_PER_CLASS, USED_BY, DatasetConfig
from harness.data.dataset import Dataset, identities
from harness.data.graph import Graph, validate
from harness.data.partition.shard import Csr
from harness.data.raw import Raw
from harness.data.sets import SETS

FORMAT = 1  # raise it when a reader, a split or a normalisation begins to give another graph


@dataclass
class Source(DatasetConfig, Dataset):
    """A dataset of this package: what a config's `dataset` block without a `_target_` describes."""

    @property
    def changed_note(self) -> str:
        # Raw files of a named data set do not change, and may be elsewhere by now.
        return "a twin that another version of the generator made" if self.source == "twin" else ""

    @property
    def refuses_changed(self) -> bool:
        return self.source == "npz"

    def check_there(self, data_dir: Path) -> None:
        if self.source == "npz":
            npz.names_in(_npz(self))
        elif self.source == "real":
            real.find(self.name, data_dir.expanduser())

    def load(self, data_dir: Path, seed: int) -> Graph:
        return load(self, data_dir, seed)

    def fingerprint(self, data_dir: Path, seed: int) -> dict[str, Any]:
        return fingerprint(self, data_dir, seed)

    graph = load  # which validates, before it normalises features


def load(config: DatasetConfig, data_dir: Path, seed: int) -> Graph:
    """The graph `config` names, split (by `seed` where the split is drawn) and validated.

    Real data sets are looked for in `data_dir` and downloaded there where they are missing. Raises InputError
    with one sentence where the download fails, or a file or the graph in it cannot be used."""
    _warn(config)
    if config.source == "twin":
        from harness.data import twin

        graph, own_split = twin.generate(config.name, scale=config.scale, seed=config.generator_seed), True
    else:
        if config.source == "npz":
            raw = npz.read(_npz(config), config.symmetrise)
        else:
            paths = real.find(config.name, Path(data_dir).expanduser())
            raw = SETS[config.name].read(*paths, symmetrise=config.symmetrise is not False)
        graph, own_split = _graph(config, raw), raw.masks is not None
    if config.split == "low_label":
        masks = splits.low_label(graph.labels, graph.num_classes, seed, config.labels_per_class)
        graph = _with_split(graph, masks)
    elif config.split == "random" or not own_split:
        graph = _with_split(graph, splits.random(graph.labels, seed))
    # Validated before features are normalised, so that a NaN is reported and not spread over its row. The
    # error for a user's own graph names its file, which is where the user has to look.
    validate(graph.replace(name=f'file "{_npz(config)}"') if config.source == "npz" else graph)
    if config.normalise_features:
        _normalise(graph)
    return graph


def _npz(config: DatasetConfig) -> Path:
    """The file of `source: npz`; `DatasetConfig` refuses that source without one."""
    assert config.path is not None
    return Path(config.path).expanduser()


def fingerprint(config: DatasetConfig, data_dir: Path, seed: int) -> dict[str, Any]:
    """Everything that determines what `load` returns, as plain values without absolute paths.

    A missing real data set is downloaded (or reported) here, as in `load`."""
    _warn(config)
    read = {f.name for f in dataclasses.fields(config)} - {"path"}
    read -= {key for key, sources in USED_BY.items() if config.source not in sources}
    if config.split != "own":
        read -= {"mask"}
    # A key at its default is left out, so that it could be added without making every graph again.
    if config.split != "low_label" or config.labels_per_class == LABELS_PER_CLASS:
        read -= {"labels_per_class"}
    found: dict[str, Any] = {"format": FORMAT, **{key: getattr(config, key) for key in sorted(read)}}
    own_split = True
    if config.source == "twin":
        from harness.data import twin

        # A twin has no files: the generator's code and this twin's calibration determine it.
        found["generator"] = twin.identity(config.name)
        files: tuple[Path, ...] = ()
    elif config.source == "npz":
        files = (_npz(config),)
        names = npz.names_in(files[0])
        own_split = set(npz.SPLITS) <= set(names)
        if "edge_weight" in names:
            found["weights"] = True
    else:
        files = real.find(config.name, Path(data_dir).expanduser())
        own_split = SETS[config.name].own_split
    found["files"] = identities(files)
    if config.split != "own" or not own_split:
        found["seed"] = seed
    return found


def _warn(config: DatasetConfig) -> None:
    for sentence in config.ignored():
        warnings.warn(sentence, stacklevel=3)


def _graph(config: DatasetConfig, raw: Raw) -> Graph:
    """The graph of `raw`, with that one of its own splits which `mask` chooses, or with empty masks where it
    has none."""
    if raw.masks is None:
        train = val = test = np.zeros(len(raw.features), bool)
        if config.mask and config.split == "own":
            raise InputError(
                f"dataset.mask={config.mask} chooses among own splits, but {config.label} has none:"
                " leave it at 0"
            )
    else:
        known = len(raw.masks[0])
        if config.split == "own" and config.mask >= known:
            raise InputError(
                f"dataset.mask={config.mask} is out of range: {config.label} has "
                f"{counted(known, 'own split')}, give 0 to {known - 1}"
            )
        train, val, test = (masks[min(config.mask, known - 1)] for masks in raw.masks)
    indptr, indices, symmetric, weights = raw.edges
    return Graph(
        name=config.label,
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
