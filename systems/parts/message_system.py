"""What systems have in common whose hidden rows travel as messages (`systems.parts.messages`)."""

from __future__ import annotations

from harness.core.adjacency import Propagation
from harness.core.counting import times
from harness.core.features import rows_times
from harness.core.needed import PerLayer
from harness.core.system import System, display_name
from harness.data.partition.shard import Shard
from systems.parts.messages import MessageAdjacency, MessageHalo, Messages, served

AS_THEY_ARE = 32


class MessageSystem(System[Shard, PerLayer]):
    """A system whose hidden rows travel as messages, and under `features=refetch` its features.

    messages   "cover": the fewest rows and partial sums; "rows": rows alone
    narrow     whether H W travels where it is narrower than H, and in the last layer C - 1 of C columns
    bits       per value of a message; 32: as they are
    """

    messages: str = "cover"
    narrow: bool = False
    bits: int = AS_THEY_ARE

    def coded(self, layer: int, send: list[int], receive: list[int]) -> Messages:
        """So many messages of a layer to and from each worker, where they do not travel as they are."""
        raise NotImplementedError

    def supports(self, run):
        if run.wire != "float32" and self.bits != AS_THEY_ARE:
            name = display_name(self)
            return (
                f"wire={run.wire} cannot be: {name} codes what it sends; give wire=float32 or system.bits=32"
            )
        return super().supports(run)

    def setup(self, context):
        super().setup(context)
        self.epoch = 0
        self.under_way: dict[int, Messages] = {}  # by layer
        if not context.matrix:
            return
        layers: list[Propagation] = [context.adjacency.at(layer) for layer in range(self.num_layers)]
        made: dict[int, MessageAdjacency] = {}  # layers that need the same rows share a plan
        for layer in range(0 if self.features == "refetch" else 1, self.num_layers):
            of = layers[layer]
            if id(of) not in made:
                made[id(of)] = MessageAdjacency(of, self.plans[layer], self.comm, self.messages == "cover")
            sent = self.narrowed(self.shard, self.widths, layer)
            if layer and self.comm.size > 1 and not any(map(sum, made[id(of)].counts)):
                # Nothing travels to or from this worker: the cheaper product goes first.
                f_in, f_out = self.widths[layer : layer + 2]
                sent = of.transform_first(f_in, f_out), 0
            layers[layer] = made[id(of)].sending(of, *sent)
        self.adjacency = PerLayer(layers)

    def narrowed(self, shard: Shard, widths: list[int], layer: int) -> tuple[bool, int]:
        """Whether a layer sends H W, and without how many of its columns."""
        f_in, f_out = widths[layer : layer + 2]
        spared = int(shard.labels.ndim == 1 and widths[-1] > 1 and layer == len(widths) - 2)
        transformed = self.narrow and f_out - spared < f_in
        return transformed, spared if transformed else 0

    def before_epoch(self, epoch):
        self.epoch = epoch

    def propagate(self, layer, h, weight, dropout):
        a = self.adjacency.at(layer)
        assert isinstance(a, MessageAdjacency)
        x = dropout.inner(a.inner_rows(h))
        y = rows_times(x, weight, self.recorder, a.fixed) if a.transformed else x
        z = served(y, a, self.messages_of(layer, *a.counts))
        return z if a.transformed else times(z, weight, self.recorder, a.fixed)

    def halo(self, layer, h):
        plan = self.plans[layer]
        if self.bits == AS_THEY_ARE:
            return self.comm.exchange(plan, h, layer)
        return MessageHalo(self, self.messages_of(layer, *plan.counts("forward")), h)

    def messages_of(self, layer, send, receive):
        """So many messages to and from each worker, as they are or coded, the same object in every epoch."""
        if layer not in self.under_way:
            exact = self.bits == AS_THEY_ARE
            given = layer, send, receive
            self.under_way[layer] = Messages(self.comm, *given) if exact else self.coded(*given)
        self.under_way[layer].epoch = self.epoch
        return self.under_way[layer]
