"""The typed schema of the blocks `model` and `evaluate`; the values stand in `conf/`."""

from __future__ import annotations

from dataclasses import dataclass

from harness.check import InputError, at_least, choice, within

MODELS = ("gcn", "sage", "gat")


@dataclass
class ModelConfig:
    """name: "gcn", "sage" (GraphSAGE with mean aggregation) or "gat" (attention over neighbours). dropout
    acts on every layer's input but the features.

    normalisation   of the GCN's adjacency: "symmetric" D^-1/2 (A+I) D^-1/2 or "row" D^-1 (A+I); a SAGE always
                    takes the mean
    norm            between layers: "none", "layer" (layer norm before the activation) or "l2" (rows of length
                    1 after it)
    heads, out_heads   of a GAT: concatenated in hidden layers (hidden counts all of them), averaged in the
                       last
    """

    name: str = "gcn"
    layers: int = 2
    hidden: int = 64
    dropout: float = 0.5
    normalisation: str = "symmetric"
    norm: str = "none"
    heads: int = 8
    out_heads: int = 1

    def __post_init__(self) -> None:
        choice("name", self.name, MODELS)
        at_least("layers", self.layers, 1)
        at_least("hidden", self.hidden, 1)
        within("dropout", self.dropout, 0.0, 0.99)
        choice("normalisation", self.normalisation, ("symmetric", "row"))
        choice("norm", self.norm, ("none", "layer", "l2"))
        at_least("heads", self.heads, 1)
        at_least("out_heads", self.out_heads, 1)
        if self.name == "gat" and self.layers > 1 and self.hidden % self.heads:
            raise InputError(
                f"hidden={self.hidden} does not divide into heads={self.heads}; give a multiple of heads"
            )

    @property
    def aggregation(self) -> str:
        """The name `harness.core.adjacency` knows the propagation matrix by; a GAT uses its edges and none of
        its weights.
        """
        return "mean" if self.name == "sage" else self.normalisation


@dataclass
class EvaluateConfig:
    """every: epochs between exact evaluations (the last epoch is always evaluated); 0 evaluates at the end
    only.
    """

    every: int = 1

    def __post_init__(self) -> None:
        at_least("every", self.every, 0)
