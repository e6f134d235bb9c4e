"""How workers tell each other a few words before anything carries their tensors."""

from __future__ import annotations

import torch.distributed as dist


class Meeting:
    """Workers 0 ... size - 1 at a store that each of them can reach: a file in a folder of the run's own, or
    torchrun's server. Opens nothing that others could connect to.
    """

    def __init__(self, store: dist.Store, rank: int, size: int):
        self.store, self.rank, self.size = store, rank, size
        self.told = 0

    def tell(self, word: str) -> list[str]:
        """Every worker's word, by rank. Collective. RuntimeError where one does not tell its own before the
        store's timeout.
        """
        self.told += 1
        self.store.set(f"word {self.told} of {self.rank}", word)
        return [self.store.get(f"word {self.told} of {p}").decode() for p in range(self.size)]
