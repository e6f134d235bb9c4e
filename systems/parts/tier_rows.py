"""The rows in CaPGNN's two tiers (section 4.2), by layer, and the epoch in which each row was computed.

`systems.parts.jaca` decides which vertices a tier holds and where each row comes from; here the rows are kept
and moved. A worker's own tier is on its device, the global tier in host memory that all workers share. What a
worker asks for is a `Request`: with the pipeline it is used in the next epoch, and is part of a checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from harness.comm.comm import Comm
from harness.comm.flight import HaloPlan, InFlight
from harness.comm.shared import SharedRows
from harness.comm.work import moved
from systems.parts.jaca import Fetch, Part, Tiers


@dataclass
class Request:
    """What `fetch` says of layer `layer`'s halo, of rows `width` wide, as asked for in `epoch`.

    flight, sent, arrived   the direct exchange, what it sends and what it fills
    announcement            the bytes by which owners tell that their rows are in the global tier
    shared                  rows taken from the global tier, and the epochs in which they were computed
    rows                    [m, F] once collected; oldest: the epoch in which the oldest of them was computed
    """

    layer: int
    epoch: int
    width: int
    fetch: Fetch
    flight: InFlight | None = None
    sent: torch.Tensor | None = None
    arrived: torch.Tensor | None = None
    announcement: InFlight | None = None
    shared: tuple[torch.Tensor, torch.Tensor] | None = None
    rows: torch.Tensor | None = field(default=None, repr=False)
    oldest: int | None = None

    def state_dict(self) -> dict[str, Any]:
        """What the next epoch uses once rows are collected: they, and the part whose gradients it sends."""
        part = self.fetch.gradient
        assert self.rows is not None, "a request is kept once it has been collected"
        return {
            "epoch": self.epoch,
            "oldest": self.oldest,
            "rows": self.rows.clone(),
            "places": part.places,
            "anyone": part.anyone,
            "send_rows": part.plan.send_rows,
            "send_counts": part.plan.send_counts,
            "receive_counts": part.plan.receive_counts,
        }

    @staticmethod
    def restore(layer: int, state: dict[str, Any], fetch: Fetch) -> Request:
        """A collected request from its state. `fetch` takes the place of the request's own, of which only the
        part for the gradients is still needed."""
        plan = HaloPlan(state["send_rows"], state["send_counts"], state["receive_counts"])
        fetch = replace(fetch, gradient=Part(plan, state["places"], state["anyone"]))
        rows = state["rows"]
        return Request(layer, state["epoch"], rows.shape[1], fetch, rows=rows, oldest=state["oldest"])


class TierRows:
    """The rows of this worker's tier and of the global tier.

    widths   {layer: F}, the layers whose inputs are cached
    among    the workers of this host, which share the global tier
    """

    def __init__(self, tiers: Tiers, comm: Comm, widths: dict[int, int], among: range):
        self.tiers, self.comm, self.recorder, self.among = tiers, comm, comm.recorder, among
        own, common = tiers.local.capacity, tiers.shared.capacity
        dtype, device = torch.get_default_dtype(), comm.device
        self.local = {l: torch.zeros(own, width, dtype=dtype, device=device) for l, width in widths.items()}
        self.local_born = {l: torch.zeros(own, dtype=torch.int64) for l in widths}
        self.shared = SharedRows(comm, common, widths, among=among)
        self.shared_born = {l: torch.zeros(common, dtype=torch.int64) for l in widths}
        self.features: torch.Tensor | None = None  # layer 0's halo [m, f0], once assembled
        self.staged: dict[int, torch.Tensor] = {}  # by layer: own rows for the global tier, put there later

    def renew_shared(self, layer: int, fetch: Fetch, h: torch.Tensor, epoch: int) -> None:
        """In a refresh every owner puts its rows of h [n, F] into the global tier. Nobody reads it before all
        have announced that they are done."""
        with self.recorder.inside("rest", "pack", layer):
            rows = h.index_select(0, fetch.publish_rows)
            self._moved(rows)
        self.shared.put(layer, fetch.publish_slots, rows)
        self.shared_born[layer][self.tiers.shared_found[self.tiers.shared_found >= 0]] = epoch

    def announce(self, layer: int) -> InFlight:
        """Tell every peer on this host, in one byte, that this worker's rows are in host memory."""
        ones = [int(p != self.comm.rank and p in self.among) for p in range(self.comm.size)]
        byte = torch.ones(sum(ones), 1, dtype=torch.uint8, device=self.comm.device)
        return self.comm.start_exchange(byte, ones, ones, layer, "forward", "flags")[0]

    def stage(self, layer: int, h: torch.Tensor) -> None:
        """Keep the rows of h [n, F] that the global tier takes in when the epoch is over."""
        if len(self.tiers.taken):
            with self.recorder.inside("rest", "pack", layer):
                self.staged[layer] = h.index_select(0, self.tiers.taken_in()[0])
                self._moved(self.staged[layer])

    def take_in(self, epoch: int) -> None:
        """Put what was staged into the global tier, which `fifo` and `lru` change between epochs.

        All workers have read what the slots held: no worker's step ends before every worker's backward pass
        has begun.
        """
        if not len(self.tiers.taken):
            return
        _, slots, changed = self.tiers.taken_in()
        for layer, rows in self.staged.items():
            self.shared.put(layer, slots, rows)
            self.shared_born[layer][changed] = epoch
        self.staged = {}

    def from_shared(self, layer: int, fetch: Fetch) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows [k, F] that this worker takes from the global tier, and the epochs [k] of their making."""
        born = self.shared_born[layer][fetch.shared_slots]
        return self.shared.get(layer, fetch.shared_slots, fetch.shared_counts), born

    def assemble(
        self,
        layer: int,
        fetch: Fetch,
        epoch: int,
        num_halo: int,
        arrived: torch.Tensor | None,
        shared: tuple[torch.Tensor, torch.Tensor],
    ) -> tuple[torch.Tensor, int | None]:
        """The halo [m, F] that was asked for in `epoch`. The own tier gets the rows that it is to hold.

        arrived  [k, F] rows that came from their owners, None where no worker asked for any
        shared   what `from_shared` gave
        Returns also the epoch in which the oldest row was computed; None where the halo is empty.

        Raw features never change: layer 0's halo is one tensor, to which only what comes in is written. Where
        the own tier holds the whole halo nothing is written, and what was computed of it stays valid.
        """
        rows, ages = self.local[layer], self.local_born[layer]
        kept = self.features if layer == 0 else None
        halo = rows.new_empty(num_halo, rows.shape[1]) if kept is None else kept
        if layer == 0:
            self.features = halo
        born = torch.full((num_halo,), epoch)
        # Every place of the halo is in exactly one of three sets: own tier, owners, global tier.
        if arrived is not None and len(arrived):
            with self.recorder.inside("rest", "unpack", layer):
                halo.index_copy_(0, fetch.direct.places, arrived)
                self._moved(arrived)
        with self.recorder.inside("rest", "pick", layer):
            if kept is None:
                held = rows.index_select(0, fetch.local_slots)
                halo.index_copy_(0, fetch.local_places, held)
                self._moved(held, held)
            born[fetch.local_places.cpu()] = ages[fetch.local_slots.cpu()]
            if len(shared[0]):
                halo.index_copy_(0, fetch.shared_places, shared[0])
                self._moved(shared[0])
            born[fetch.shared_places.cpu()] = shared[1]
            # The own tier keeps the rows as they were used; one that came from the global tier keeps its age.
            keep = halo.index_select(0, fetch.keep_places)
            rows.index_copy_(0, fetch.keep_slots, keep)
            self._moved(keep, keep)
            ages[fetch.keep_slots.cpu()] = born[fetch.keep_places.cpu()]
        return halo, int(born.min()) if len(born) else None

    def _moved(self, *copies: torch.Tensor) -> None:
        """Count that rows [k, F] were gathered or put into places, once per time that they are given."""
        self.recorder.work(*(moved(rows) for rows in copies if len(rows)))

    def state_dict(self) -> dict:
        own = self.tiers.own_slots()
        return {
            "tiers": self.tiers.state_dict(),
            "store": self.local,
            "born": self.local_born,
            "shared_born": self.shared_born,
            "shared": {l: rows[own] for l, rows in self.shared.rows.items()},
        }

    def load_state_dict(self, state: dict) -> None:
        """Collective: nobody reads the global tier before every owner has put its rows back."""
        self.tiers.load_state_dict(state["tiers"])
        self.local = state["store"]
        # Ages and the global tier are on the host, wherever a checkpoint was loaded to.
        self.local_born = {l: ages.cpu() for l, ages in state["born"].items()}
        self.shared_born = {l: ages.cpu() for l, ages in state["shared_born"].items()}
        own = self.tiers.own_slots()
        for l, rows in state["shared"].items():
            self.shared.rows[l][own] = rows.cpu()
        self.comm.barrier()
