"""Keys of a model, an optimiser, a schedule and evaluation that cannot be, each refused in one sentence."""

from __future__ import annotations

import pytest

from harness.base.errors import InputError
from tests.test_config_refused import accept


@pytest.mark.parametrize(
    "arguments, parts",
    [
        (["model.name=gnc"], ['model.name="gnc"', 'did you mean "gcn"?']),
        (["model.norm=batsh"], ['model.norm="batsh"', 'did you mean "batch"?']),
        (["model.activation=swish"], ['model.activation="swish"', "elu, gelu, leaky_relu, relu, tanh"]),
        (["model.residual=perhaps"], ["model.residual=perhaps is not true or false: give one of them"]),
        (["+model._target_=torch.nn.Linear"], ['model._target_="torch.nn.Linear" is not a ModelConfig']),
        (["optimiser=sdg"], ['optimiser="sdg"', 'did you mean "sgd"?']),
        (["optimiser=newton"], ['optimiser="newton"', "adam, adamw, sgd"]),
        (["optimiser=sgd", "optimiser.momentum=2"], ["optimiser.momentum=2.0", "0 to 0.9999"]),
        (["optimiser=sgd", "optimiser.momentum=0", "optimiser.nesterov=true"], ["nesterov=true", "momentum"]),
        (["optimiser.momentum=0.9"], ["optimiser.momentum", "lr"]),
        (["optimiser.lr=0"], ["optimiser.lr=0.0", "more than 0"]),
        (["optimiser._target_=torch.optim.Adam"], ['_target_="torch.optim.Adam" is not an Optimiser']),
        (["schedule=cosin"], ['schedule="cosin"', 'did you mean "cosine"?']),
        (["schedule=step", "schedule.every=0"], ["schedule.every=0", "give 1 to "]),
        (["schedule.warmup=-1"], ["schedule.warmup=-1", "give 0 to "]),
        (["schedule=cosine", "schedule.floor=2"], ["schedule.floor=2.0", "0 to 1"]),
        (["evaluate.patience=-1"], ["evaluate.patience=-1", "give 0 to "]),
        (["evaluate.patience=3", "evaluate.every=0"], ["evaluate.patience=3", "every=1 or more"]),
        (["evaluate.threshold=0"], ["evaluate.threshold=0.0", "more than 0 and at most 0.999999"]),
        (["evaluate.threshold=1"], ["evaluate.threshold=1.0", "more than 0 and at most 0.999999"]),
    ],
    ids=lambda x: x[-1] if isinstance(x, list) else None,
)
def test_a_key_that_cannot_be_is_one_sentence(arguments, parts):
    with pytest.raises(InputError) as refused:
        accept(*arguments)
    sentence = str(refused.value)
    assert "\n" not in sentence and all(part in sentence for part in parts), sentence
