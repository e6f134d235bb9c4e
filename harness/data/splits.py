"""Splits drawn by seed over the labelled vertices: random 60/20/20, and few labels per class."""

import numpy as np

from harness.base.errors import InputError
from harness.data.config import LABELS_PER_CLASS

Masks = tuple[np.ndarray, np.ndarray, np.ndarray]  # train, val, test: [V] bool each

TRAIN_SHARE, VAL_SHARE = 0.6, 0.2
LOW_LABEL_VAL = 30  # vertices per class


def random(labels: np.ndarray, seed: int) -> Masks:
    """60 % of the labelled vertices train, 20 % validate, the rest test. `labels` as in Graph.

    Raises InputError where fewer than 5 vertices are labelled."""
    labelled = _shuffled(labels, seed)
    train, val = int(TRAIN_SHARE * len(labelled)), int(VAL_SHARE * len(labelled))
    if not train or not val:
        raise InputError(
            f'dataset.split="random" needs 5 labelled vertices but there are {len(labelled)}: label more of '
            "them or give own splits"
        )
    return _masks(len(labels), labelled[:train], labelled[train : train + val], labelled[train + val :])


def low_label(labels: np.ndarray, num_classes: int, seed: int, train: int = LABELS_PER_CLASS) -> Masks:
    """`train` vertices of each class train, 30 validate, every other labelled one tests; empty classes are
    skipped. With the same seed, a larger `train` keeps the training vertices of a smaller one and adds some.

    Raises InputError for multi-label graphs and where a class has no vertex left to test."""
    if labels.ndim == 2:
        raise InputError(
            'dataset.split="low_label" counts vertices per class, and a multi-label graph has no classes: '
            "use dataset.split=own or random"
        )
    used = train + LOW_LABEL_VAL
    labelled = _shuffled(labels, seed)
    sizes = np.bincount(labels[labelled], minlength=num_classes)
    if len(small := np.flatnonzero((sizes > 0) & (sizes <= used))):
        few = int(small[np.argmin(sizes[small])])
        raise InputError(
            f'dataset.split="low_label" needs more than {used} vertices per class but class {few} has '
            f"{sizes[few]}: {_mend(int(sizes[few]))}"
        )
    by_class = labelled[np.argsort(labels[labelled], kind="stable")]
    rank = np.arange(len(by_class)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return _masks(
        len(labels), by_class[rank < train], by_class[(rank >= train) & (rank < used)], by_class[rank >= used]
    )


def _mend(smallest: int) -> str:
    """What to give where the smallest class has too few vertices."""
    if (most := smallest - LOW_LABEL_VAL - 1) > 0:
        return f"give +dataset.labels_per_class={most} or fewer, or dataset.split=random"
    return "use dataset.split=random"


def _shuffled(labels: np.ndarray, seed: int) -> np.ndarray:
    labelled = np.arange(len(labels)) if labels.ndim == 2 else np.flatnonzero(labels >= 0)
    return np.random.default_rng(seed).permutation(labelled)


def _masks(num_vertices: int, *parts: np.ndarray) -> Masks:
    masks = np.zeros((3, num_vertices), bool)
    for mask, part in zip(masks, parts, strict=True):
        mask[part] = True
    return masks[0], masks[1], masks[2]
