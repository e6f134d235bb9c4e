"""Layers of GCN, GraphSAGE-mean and GAT, and stacks of layers of any depth and width, written against a
system's answer to "what remote rows do I use?".
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from harness.base.autograd import applied
from harness.base.errors import InputError
from harness.comm.recorder import Recorder
from harness.core.adjacency import Propagation
from harness.core.attention import attend
from harness.core.config import ModelConfig
from harness.core.counting import streamed
from harness.core.features import first_rows, rows_times
from harness.core.inputs import Static, StaticInput
from harness.core.mixins import SeesOutput
from harness.core.normalisation import FUNCTIONS, BatchNorm
from harness.core.propagate import (
    BackwardMark,
    HaloDropout,
    KeepHaloInGraph,
    Strategy,
    WrongRows,
    arrived,
    checked,
)

NORMS: dict[str, Callable[[int], nn.Module]] = {"layer": nn.LayerNorm, "batch": BatchNorm}
# Counts of the passes over the rows that a norm takes.
LAYER_NORM = partial(streamed, reads=2, writes=1, back=(4, 1))
BATCH_NORM = partial(streamed, reads=7, writes=5, back=(15, 8))


def output(strategy: Strategy, layer: int, z: torch.Tensor) -> torch.Tensor:
    """Z [n, f_out] as a system that `SeesOutput` gives it on, else z itself; WrongRows where it has another
    shape."""
    if not isinstance(strategy, SeesOutput):
        return z
    return checked(strategy.output(layer, z), tuple(z.shape), z, "output, of the shape that it was given")


class Layer(nn.Module):
    """One graph convolution: Z = A H W (+ H W_root) + b. The layers of every model have this `forward`;
    `Model` adds what stands between them.

    weight [f_in, f_out]; root [f_in, f_out] in GraphSAGE only, for the vertex's own row; bias [f_out]
    """

    first = False  # whether it is layer 0, whose input are the features

    def __init__(self, f_in: int, f_out: int, root: bool, generator: torch.Generator):
        super().__init__()
        self.weight = nn.Parameter(glorot(f_in, f_out, generator))
        self.root = nn.Parameter(glorot(f_in, f_out, generator)) if root else None
        self.bias = nn.Parameter(torch.zeros(f_out))

    def forward(
        self, layer: int, h: torch.Tensor, static: Static | None, strategy: Strategy, drop: HaloDropout
    ) -> torch.Tensor:
        """Z [n, f_out] of rows h [n, f_in], or of what `static` keeps of layer 0 where it is given."""
        recorder = strategy.comm.recorder
        if static is not None:
            z = static.times(self.weight)
        else:
            shape = strategy.adjacency.at(layer).num_rows, self.weight.shape[1]
            z = strategy.propagate(layer, h, self.weight, drop)
            z = checked(z, shape, self.weight, "rows of its product, one per vertex of the layer's own")
        if self.root is not None:
            own = (
                static.own_times(self.root)
                if static is not None
                else self._own_times(strategy.adjacency.at(layer), h, drop, recorder)
            )
            z = streamed(z + own, recorder, reads=2, writes=1)
        return output(strategy, layer, streamed(z + self.bias, recorder, reads=1, writes=1, back=(1, 0)))

    def _own_times(
        self, adjacency: Propagation, h: torch.Tensor, drop: HaloDropout, recorder: Recorder
    ) -> torch.Tensor:
        """H W_root of the own rows of h that the layer gives Z of, after dropout."""
        rows = first_rows(drop.inner(adjacency.inner_rows(h)), adjacency.num_rows)
        assert self.root is not None
        return rows_times(rows, self.root, recorder, adjacency.fixed)

    def transforms_first(self, adjacency: Propagation, static: Static | None) -> bool | None:
        """Whether A (H W) is taken instead of (A H) W; None where A H is kept."""
        f_in, f_out = self.weight.shape
        if static is not None:
            return static.transforms_first(f_in, f_out) if isinstance(static, StaticInput) else None
        features = adjacency.features if self.first else None
        if features is not None and features.sparse:
            return True
        return adjacency.transform_first(f_in, f_out, self.first)


class AttentionLayer(nn.Module):
    """One graph attention: Z = concat or mean over heads of softmax(e) H W_head, + b (see
    `harness.core.attention`).

    weight [f_in, heads f]; att_source, att_target [heads, f]; bias [f_out], f_out = heads f concatenated, f
    averaged
    """

    def __init__(self, f_in: int, f_out: int, heads: int, concat: bool, generator: torch.Generator):
        super().__init__()
        self.heads, self.concat = heads, concat
        f = f_out // heads if concat else f_out
        self.weight = nn.Parameter(glorot(f_in, heads * f, generator))
        self.att_source = nn.Parameter(glorot(heads, f, generator))
        self.att_target = nn.Parameter(glorot(heads, f, generator))
        self.bias = nn.Parameter(torch.zeros(f_out))

    def forward(
        self, layer: int, h: torch.Tensor, static: Static | None, strategy: Strategy, drop: HaloDropout
    ) -> torch.Tensor:
        adjacency, recorder = strategy.adjacency.at(layer), strategy.comm.recorder
        edges = adjacency.attention
        y_halo: torch.Tensor | None = None
        if isinstance(static, StaticInput):
            y, y_halo = static.rows_times(self.weight)
        else:
            # The halo's rows travel while this worker's own are multiplied.
            pending = strategy.halo(layer, h)
            y = rows_times(drop.inner(adjacency.inner_rows(h)), self.weight, recorder, adjacency.fixed)
            remote = arrived(pending, adjacency, h)
            if adjacency.halo is not None:
                features = adjacency.layer_0(h)
                rows = remote if features is None else features.halo(remote)
                y_halo = rows_times(drop.halo(rows), self.weight, recorder, adjacency.fixed)
            else:
                y = applied(KeepHaloInGraph, y, remote)
        y = y.view(len(y), *self.att_source.shape)
        target = self._score(first_rows(y, edges.num_rows), self.att_target, recorder)
        if y_halo is not None:
            y = torch.cat([y, y_halo.view(len(y_halo), *self.att_source.shape)])
            y = streamed(y, recorder, reads=1, writes=1)
        z = attend(edges, y, self._score(y, self.att_source, recorder), target, recorder)
        z = z.flatten(1) if self.concat else z.mean(1)
        return output(strategy, layer, streamed(z + self.bias, recorder, reads=1, writes=1, back=(1, 0)))

    @staticmethod
    def _score(y: torch.Tensor, half: nn.Parameter, recorder: Recorder) -> torch.Tensor:
        """One half of the scores [n, heads] of rows y [n, heads, f]: a product for each value, and its sum.
        Backwards the product's two gradients, of which the parameter's is summed up."""
        made = streamed(y * half, recorder, reads=2, writes=1, back=(4, 2))
        return made.sum(2)


class Model(nn.Module):
    """L layers with norm, activation and residual between them; widths [L + 1]. The same seed gives the same
    weights on every worker.
    """

    def __init__(self, config: ModelConfig, widths: list[int], seed: int):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        last = len(widths) - 2
        self.activation = FUNCTIONS[config.activation]
        self.unit_rows, self.residual = config.norm == "l2", config.residual
        self.layers = nn.ModuleList()
        for l, (f_in, f_out) in enumerate(zip(widths, widths[1:])):
            layer: Any = config.layer(f_in, f_out, l == last, generator)
            self.layers.append(layer)
            layer.first = l == 0
            norm = NORMS.get(config.norm)  # others have no parameters
            layer.norm = norm(f_out) if norm is not None and l < last else None
            # Hidden rows are added as they are, features through a matrix, even where both have one width.
            project = config.residual and l == 0 < last
            layer.skip = nn.Parameter(glorot(f_in, f_out, generator)) if project else None

    def forward(
        self, x: torch.Tensor, static: Static | None, strategy: Strategy, drops: list[HaloDropout]
    ) -> torch.Tensor:
        """Logits [n, C] of the worker's own vertices.

        x        [n, f0] features, used where `static` is None
        static   what is kept of layer 0, or None where its input differs between epochs or is fetched anew
        drops    one per layer
        """
        h, recorder = x, strategy.comm.recorder
        for drop in drops:
            drop.recorder = recorder
        for l in range(len(self.layers)):
            layer: Any = self.layers[l]  # with what `__init__` put beside it
            only, taken = static if l == 0 else None, h
            if isinstance(only, StaticInput) and drops[l].p:
                only = only.dropped(drops[l])
            # Z, for which the layer asks the system for remote rows.
            if recorder.training:
                recorder.segment("compute", "forward", l)
                adjacency = strategy.adjacency.at(l)
                first = layer.transforms_first(adjacency, only) if isinstance(layer, Layer) else None
                if first is not None:
                    recorder.metric("transform_first", float(first), l)
            try:
                h = layer(l, h, only, strategy, drops[l])
            except WrongRows as wrong:
                raise InputError(
                    f"{strategy.name}, layer {l}, worker {strategy.comm.rank}: it {wrong}"
                ) from None
            if recorder.training:
                h = applied(BackwardMark, h, recorder, l)
            # The next layer's input, made of Z row by row (batch norm sums over all workers).
            if l + 1 < len(self.layers):
                h = self._normalised(l, h, strategy)
                h = streamed(self.activation(h), recorder, reads=1, writes=1, back=(2, 1))
                if self.residual:
                    rows = first_rows(strategy.adjacency.at(l).inner_rows(taken), len(h))
                    # Only layer 0 has `skip`. Features are added without dropout, as hidden rows are.
                    more = rows
                    if layer.skip is not None and static is not None:
                        more = static.own_times(layer.skip)
                    elif layer.skip is not None:
                        more = rows_times(rows, layer.skip, recorder)
                    assert isinstance(more, torch.Tensor)
                    h = streamed(h + more, recorder, reads=2, writes=1)
                if self.unit_rows:
                    h = streamed(F.normalize(h, dim=1), recorder, reads=2, writes=1, back=(6, 4))
        return h

    def _normalised(self, l: int, z: torch.Tensor, strategy: Strategy) -> torch.Tensor:
        norm: Any = self.layers[l].norm
        if norm is None:
            return z
        others = (strategy.comm, strategy.adjacency.at(l).num_own, l) if isinstance(norm, BatchNorm) else ()
        rows: torch.Tensor = norm(z, *others)
        return (BATCH_NORM if others else LAYER_NORM)(rows, strategy.comm.recorder)


def glorot(f_in: int, f_out: int, generator: torch.Generator) -> torch.Tensor:
    """Uniform in +-sqrt(6 / (f_in + f_out))  [f_in, f_out]."""
    bound = math.sqrt(6.0 / (f_in + f_out))
    return (torch.rand(f_in, f_out, generator=generator) * 2 - 1) * bound
