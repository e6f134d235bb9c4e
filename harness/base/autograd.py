"""Calling an autograd function, with the type that torch leaves out."""

import torch


def applied(function: type[torch.autograd.Function], *arguments: object) -> torch.Tensor:
    """What `function`, which has one result, gives for `arguments`."""
    result: torch.Tensor = function.apply(*arguments)
    return result
