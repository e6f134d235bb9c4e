"""Inherited by every system: at its exact knob it is single-process full-batch training."""

import numpy as np
import pytest

from harness.run.config import make_system
from tests import systems
from tests.oracles.samples import random_graph, with_edge_weights
from tests.systems import EXACT, EXACT_VARIANTS, Settings, label


def test_every_system_is_tested(tmp_path):
    """One that has a yaml alone as it stands, and at the knobs at which its class says that it is exact."""
    there = {p.relative_to(systems.CONF).with_suffix("").as_posix() for p in systems.CONF.rglob("*.yaml")}
    assert there >= set(EXACT) and systems.VARIANTS.keys() == {name.split("/")[0] for name in there}
    (tmp_path / "conf").mkdir()
    for name in ("bns", "cdfgnn", "zero_halo", "digest_a"):
        (tmp_path / "conf" / f"{name}.yaml").write_text((systems.CONF / f"{name}.yaml").read_text())
    (tmp_path / "variants").mkdir()
    (tmp_path / "variants" / "zero_halo.py").write_text("STALE = []\n")
    found = systems.collected(tmp_path / "conf", tmp_path / "variants")
    assert found["bns"].EXACT == {"bns": [{"rate": 1.0}]} and found["bns"].STALE == [("bns", {})]
    assert systems.models_of("bns") == found["bns"].MODELS and found["bns"].METHODS is None
    assert found["cdfgnn"].METHODS == ["ebv", "hep", "dne", "metis/edges"]
    assert found["cdfgnn"].MODELS == ["gcn", "sage"]
    assert found["digest_a"].STALE == [] and not hasattr(found["zero_halo"], "EXACT")


def test_the_knob_at_which_a_class_says_that_it_is_exact_is_among_those_tested():
    named = {name: type(make_system(systems.block(name))).exact for name in EXACT if "/" not in name}
    assert {name for name, exact in named.items() if exact is not None} == {
        name for name, tested in EXACT.items() if isinstance(tested, list) and "/" not in name
    }
    for name, exact in named.items():
        if exact is not None:
            alike = [
                knobs for knobs in EXACT[name] if systems.block(name, **knobs) == systems.block(name, **exact)
            ]
            assert alike, f"{name} says that it is exact at {exact}, which no test tries"


def is_first(variant: tuple[str, dict]) -> bool:
    """Whether it is its system's first."""
    return variant[1] == next(knobs for name, knobs in EXACT_VARIANTS if name == variant[0])


@pytest.mark.parametrize(
    "variant,model",
    [
        pytest.param(
            v,
            model,
            id=f"{label(v)}-{model}",
            # In every run of the suite GCN at every knob, attention at a system's first. GraphSAGE is what
            # oracles draw.
            marks=() if model == "gcn" or is_first(v) else pytest.mark.nightly(2),
        )
        for v in EXACT_VARIANTS
        for model in systems.models_of(v[0])
        if model != "sage"
    ],
)
def test_exact_knob_is_full_batch_training(pool, variant, model):
    settings = Settings(model=systems.small(model, layers=3), epochs=4)
    # Any number of workers at a system's first knob; elsewhere nothing depends on that.
    partitions, block = systems.partitions_of(variant[0]), systems.block(variant[0], **variant[1])
    for parts, method in partitions if is_first(variant) and model == "gcn" else partitions[-1:]:
        graph = random_graph(7, vertices=23, directed=parts == 4)
        if parts == 2 and systems.takes_weights(block, model):
            graph = with_edge_weights(graph, 7)
        outcome = systems.run(pool, graph, block, parts, method, settings)
        history = systems.exact(graph, outcome, settings)
        systems.assert_trained_alike(outcome, history)
        if model != "gat":  # whose oracle scores nothing
            np.testing.assert_allclose(outcome.scores[-1], list(history.scores.values()))


@pytest.mark.parametrize(
    "variant,model",
    [(v, m) for v in systems.SINGLE_VARIANTS for m in systems.models_of(v[0])],
    ids=lambda value: value if isinstance(value, str) else label(value),
)
def test_a_single_worker_has_nothing_remote_to_miss(pool, variant, model):
    graph = random_graph(8, vertices=20)
    settings = Settings(model=systems.small(model, layers=2))
    method = systems.partitions_of(variant[0])[0][1]
    outcome = systems.run(pool, graph, systems.block(variant[0], **variant[1]), 1, method, settings)
    systems.assert_trained_alike(outcome, systems.exact(graph, outcome, settings))
