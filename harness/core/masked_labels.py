"""Masked label propagation: in each epoch a part of the training vertices show their labels, and the others
are what the loss counts. Zhuang et al., ICS 2025, arXiv 2411.16025, train so in their code.

    X' = X + S_t E                     S_t [n, C] one-hot rows of the training vertices that are visible in
                                       epoch t, 0 elsewhere; E [C, f0] learned
    loss = sum over the hidden training vertices / ((1 - share) N_train)
    v is visible in epoch t where u(seed, t, v) < share

u are 32 bits of a hash (`harness.base.splitmix`), so that any partition draws the same. Evaluation shows the
labels of all training vertices: its training score is then no measure.

X' differs in every epoch and has a gradient. So layer 0 is as hidden layers are: its rows are sent in every
epoch, and their gradients come back. Over M halo rows that are 8 M f0 bytes per epoch, 4-byte floats.

Decisions: E is drawn as weights are, but from a generator of its own, so that the weights are those of a run
without labels. Each vertex is drawn by itself, so that the share of visible ones is met on average.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from harness.base.bounds import number
from harness.base.splitmix import GOLDEN, mix_int, mix_tensor, signed
from harness.comm.work import copied, moved, pack
from harness.core.cuts import EdgeCut
from harness.core.dropout import dropout_key
from harness.core.features import dense
from harness.core.models import Model, glorot

BITS = 32  # of u
NO_PASS = 1 << 52  # no epoch has so many forward passes, so that no dropout has this draw


@dataclass
class MaskedLabels:
    """Training vertices show their labels to layer 0, at random a part in each epoch, and the loss counts the
    others.

    share   of the training vertices that show their labels in an epoch
    """

    share: float = number(0.62, 0, 0.99, above=True)


def visible(ids: torch.Tensor, share: float, seed: int, epoch: int) -> torch.Tensor:
    """[t] bool: which of the training vertices `ids` [t] int64 show their labels in an epoch."""
    base = mix_int(dropout_key(seed, epoch, 0, NO_PASS))
    words = mix_tensor((ids << 32) * signed(GOLDEN) + signed(base))
    shown: torch.Tensor = (words & (2**BITS - 1)) < round(share * 2**BITS)
    return shown


class LabelInput:
    """X' of one worker's own rows. E becomes the model's parameter `label_embedding`.

    rows      [t] int64: this worker's training vertices as places among the rows that training takes
    own       [t] int64: the same vertices, in the same order, among all own rows, which evaluation takes
    labels    [t] int64: their labels
    count     training vertices of all workers
    widths    [L + 1]: features, hidden layers, classes
    """

    def __init__(
        self,
        masked: MaskedLabels,
        model: Model,
        cut: EdgeCut,
        rows: torch.Tensor,
        own: torch.Tensor,
        labels: torch.Tensor,
        count: int,
        widths: list[int],
        seed: int,
    ):
        self.share, self.cut, self.count, self.seed = masked.share, cut, count, seed
        self.recorder = cut.kernel.recorder
        self.rows, self.own, self.labels = rows, own, labels
        self.ids = cut.ids[0][0][self.rows].long()
        first: Any = model.layers[0]
        first.first = False  # its input is no longer the features, and has a gradient
        generator = torch.Generator().manual_seed(mix_int(dropout_key(seed, 0, 0, NO_PASS)) >> 1)
        drawn = glorot(widths[-1], widths[0], generator)
        self.embedding = torch.nn.Parameter(drawn.to(self.rows.device))
        model.label_embedding = self.embedding

    def begin(self, epoch: int) -> tuple[torch.Tensor, float]:
        """Draw which training vertices are visible in this epoch. Returns the rows of the hidden ones, which
        the loss counts, and what their summed loss is divided by."""
        seen = visible(self.ids, self.share, self.seed, epoch)
        self.seen = self.rows[seen], self.labels[seen]
        return self.rows[~seen], (1 - self.share) * self.count

    def of_epoch(self) -> torch.Tensor:
        """X' [rows, f0] of the rows that training takes, of the epoch that has begun."""
        return self._shown(self.cut.x, *self.seen)

    def of_all(self) -> torch.Tensor:
        """X' [n, f0] of all own rows, all training vertices visible."""
        cut = self.cut
        x = cut.x if cut.own is cut.features else dense(cut.features, cut.x.device)
        return self._shown(x, self.own, self.labels)

    def _shown(self, x: torch.Tensor, rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        added = F.embedding(labels, self.embedding)
        once = moved(added), pack(len(added), added.shape[1], added.itemsize, added=True)
        self.recorder.work(*once, copied(x))
        self.recorder.later(*once)
        return x.index_add(0, rows, added)
