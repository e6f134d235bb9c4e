"""The models of the tree: GCN, GraphSAGE-mean and GAT, chosen by `model.name`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from harness.base.bounds import number, word
from harness.base.errors import InputError, choice
from harness.base.target import target_class
from harness.core.config import ACTIVATIONS, ModelConfig
from harness.core.models import AttentionLayer, Layer


@dataclass
class Gcn(ModelConfig):
    """Z = A H W + b (Kipf and Welling, 2017). The keys of all three models are keys of each.

    normalisation   of the GCN's adjacency: "symmetric" D^-1/2 (A+I) D^-1/2 or "row" D^-1 (A+I)
    heads        of a GAT: attention heads of a hidden layer, whose rows are concatenated; hidden is the width
                 of all of them together
    out_heads    of a GAT: attention heads of the last layer, whose logits are averaged
    """

    fewer_rows: ClassVar[bool] = True
    additive: ClassVar[bool] = True

    name: str = "gcn"
    normalisation: str = word("symmetric", "row")
    heads: int = number(8, 1, 2**10)
    out_heads: int = number(1, 1, 2**10)

    @property
    def aggregation(self) -> str:
        return self.normalisation

    def layer(self, f_in: int, f_out: int, last: bool, generator: torch.Generator) -> torch.nn.Module:
        return Layer(f_in, f_out, False, generator)


@dataclass
class Sage(Gcn):
    """GraphSAGE with mean aggregation (Hamilton et al., 2017): Z = A H W + H W_root + b, A = D^-1 A."""

    name: str = "sage"

    @property
    def aggregation(self) -> str:
        return "mean"

    def layer(self, f_in: int, f_out: int, last: bool, generator: torch.Generator) -> torch.nn.Module:
        return Layer(f_in, f_out, True, generator)


@dataclass
class Gat(Gcn):
    """Graph attention (Velickovic et al., 2018), ELU between layers. It uses the propagation matrix's edges
    and none of its weights.
    """

    name: str = "gat"
    activation: str = word("elu", *ACTIVATIONS)

    matrix: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layers > 1 and self.hidden % self.heads:
            raise InputError(
                f"hidden={self.hidden} does not divide into heads={self.heads}; give a multiple of heads"
            )

    def layer(self, f_in: int, f_out: int, last: bool, generator: torch.Generator) -> torch.nn.Module:
        return AttentionLayer(f_in, f_out, self.out_heads if last else self.heads, not last, generator)


def model_class(block: Mapping[str, Any]) -> type[ModelConfig]:
    """The class of a block `model`: the one its `_target_` names, else the tree's own model called `name`."""
    if "_target_" in block:
        return target_class(block, "model", ModelConfig)
    models = {"gcn": Gcn, "sage": Sage, "gat": Gat}
    name = block.get("name", "gcn")
    choice("model.name", name, models)
    return models[name]
