"""Inherited by every system: at its exact knob it is single-process full-batch training, and it sends what it
must.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from harness.run.config import make_system
from tests import systems
from tests.oracles import bytes as count
from tests.oracles import dense
from tests.oracles.samples import random_graph
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
    assert found["cdfgnn"].METHODS == ["ebv", "hep", "dne", "metis/edges"] and found["cdfgnn"].MODELS == [
        "gcn",
        "sage",
    ]
    assert found["digest_a"].STALE == [] and not hasattr(found["zero_halo"], "CONTROL")


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
    "directed,variant,model",
    [
        pytest.param(
            directed,
            v,
            model,
            id=f"{'directed' if directed else 'undirected'}-{label(v)}-{model}",
            # In every run of the suite GCN at every knob, the other models at a system's first.
            marks=() if model == "gcn" or (is_first(v) and not directed) else pytest.mark.nightly(2),
        )
        for v in EXACT_VARIANTS
        for model in systems.models_of(v[0])
        # Directed graphs at a system's first knob; at others it equals its oracle on them.
        for directed in ((False, True) if is_first(v) or v[0] == "vanilla" else (False,))
    ],
)
def test_exact_knob_is_full_batch_training(pool, variant, model, directed):
    graph = random_graph(7, vertices=23, directed=directed)
    settings = Settings(model=systems.small(model, layers=3), epochs=4)
    # One worker and any number of them at a system's first knob; elsewhere nothing depends on that.
    partitions = systems.partitions_of(variant[0])
    for parts, method in (
        partitions if is_first(variant) and model == "gcn" and not directed else partitions[3:]
    ):
        outcome = systems.run(pool, graph, systems.block(variant[0], **variant[1]), parts, method, settings)
        systems.assert_trained_alike(outcome, systems.exact(graph, outcome, settings))


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


@pytest.mark.parametrize(
    "settings",
    [
        Settings(model=systems.small("gcn", 1)),
        Settings(model=systems.small("gcn", 2, 9, normalisation="row")),
    ],
    ids=["one layer", "row normalisation"],
)
@pytest.mark.parametrize("name", ["vanilla", "cagnet"])
def test_other_depths_and_normalisations(pool, name, settings):
    graph = random_graph(9, vertices=21)
    outcome = systems.run(pool, graph, systems.block(name), 3, "random", settings)
    systems.assert_trained_alike(outcome, systems.exact(graph, outcome, settings))


@pytest.mark.parametrize("norm", ["layer", "l2"])
@pytest.mark.parametrize("name", ["cagnet", "cdfgnn"])
def test_norms_between_layers(pool, name, norm):
    """As on one worker without a halo, whose steps tests/test_models.py holds to torch."""
    graph = random_graph(9, vertices=21)
    # Wide enough that rows have several active units: a row of one is constant under "l2", and what passes
    # back is rounding.
    settings = Settings(model=systems.small("gcn", 3, 24, norm=norm))
    one, many = (
        systems.run(pool, graph, systems.block(each, **(EXACT[each][0])), parts, settings=settings)
        for each, parts in (("vanilla", 1), (name, 3))
    )
    np.testing.assert_allclose(many.losses, one.losses, rtol=1e-9)


def test_multilabel_loss_and_score(pool):
    graph = random_graph(10, vertices=24, multilabel=True)
    outcome = systems.run(pool, graph, systems.block("vanilla"), 3)
    history = systems.exact(graph, outcome, Settings())
    systems.assert_trained_alike(outcome, history)
    np.testing.assert_allclose(outcome.scores[-1], [history.scores[s] for s in ("train", "val", "test")])


def layer_flops(model: str, layer: int, propagated: bool, n: int, m: int, e: int) -> tuple[int, int]:
    """Of a forward and a backward pass of 5 -> 8 -> 3 with n inner and m halo vertices and e edges: 2 for a
    multiply-add, and in a propagation matrix 1 for an edge, for a self-loop and for each scale of a row or a
    column of its two blocks. propagated: whether layer 0 does that in this epoch, or has kept A X."""
    f_in, f_out = [(5, 8), (8, 3)][layer]
    gradients = [1, 2][layer]  # of the weight; of the input, which layer 0 does not ask for
    # each head's product of all rows, its scores, its weighted sum; the last layer's heads are averaged
    if model == "gat":
        width = 2 * [4, 3][layer]
        product = 2 * (n + m) * f_in * width
        forward, backward = ((e + n) * (rows * width + ends * 2) for rows, ends in ((2, 4), (4, 5)))
        return product + forward, gradients * product + backward
    a_column = {"gcn": e + n + 2 * n + n + m, "sage": e + 2 * n}[model]
    own = 2 * n * f_in * f_out * (model == "sage")  # with the root weight
    if layer == 0:  # the features are propagated before they grow wider
        product = own + 2 * n * f_in * f_out
        return product + f_in * a_column * propagated, product
    product = own + 2 * (n + m) * f_in * f_out
    return product + f_out * a_column, 2 * product + f_out * a_column


@pytest.mark.parametrize("features", ["refetch", "once"])
@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_compute_segments_count_the_operations_of_their_products(pool, model, features):
    """A backward pass has the forward's dense products twice, for the weight and for the input, which layer 0
    does not ask for, and its sparse ones once.
    """
    graph = random_graph(12, vertices=60)
    settings = Settings(model={**systems.small(model, layers=2), "hidden": 8}, epochs=2)
    outcome = systems.run(pool, graph, systems.block("vanilla", features=features), 2, settings=settings)
    a = dense.adjacency(graph) > 0
    for part, worker in enumerate(outcome.workers):
        inner = outcome.assignment == part
        n, m, e = int(inner.sum()), int((a[inner].any(0) & ~inner).sum()), int(a[inner].sum())
        assert 2 * e * (8 - 3) > 3 * m * 8 * 3, (
            "layer 1 shrinks rows before it adds them up, though halo rows are multiplied too"
        )
        for epoch, (_, spans) in enumerate(worker["spans"]):
            counted = Counter()
            for span in spans:
                counted[span.name, span.layer] += span.flops
                assert span.flops == sum(done.flops for done in span.work)
            propagated = features == "refetch" or epoch == 0
            want = {}
            for layer in range(2):
                want["forward", layer], want["backward", layer] = layer_flops(
                    model, layer, propagated, n, m, e
                )
            assert counted == Counter(want)


@pytest.mark.parametrize("features", ["refetch", "once"])
@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_vanilla_bytes_are_the_closed_form(pool, features, model):
    graph = random_graph(12, vertices=40)
    settings = Settings(model=systems.small(model, 3, 6), dtype="float32", epochs=2)
    outcome = systems.run(pool, graph, systems.block("vanilla", features=features), 4, settings=settings)
    weights = sum(w.size for w in outcome.weights[0].values())
    for epoch in range(2):
        want = count.vanilla(graph, outcome.assignment, outcome.widths, features=features, first=epoch == 0)
        sent = outcome.sent(epoch)
        assert sent.pop((-1, "backward", "weights"))[1] == count.all_reduce(weights, 4)
        for direction in ("forward", "backward"):
            rows, size = np.zeros(3, int), np.zeros(3, int)
            for (layer, way, _), (r, b) in sent.items():
                if way == direction:
                    rows[layer] += r
                    size[layer] += b
            np.testing.assert_array_equal(rows, want["rows"][direction])
            np.testing.assert_array_equal(size, want["bytes"][direction])


@pytest.mark.parametrize("name", ["sancus", "cdfgnn", "pscgcn"])
def test_by_default_layer_0_is_fetched_in_the_first_epoch_only(pool, name):
    system, settings = systems.block(name), Settings(dtype="float32", epochs=4)
    outcome = systems.run(pool, random_graph(12, vertices=30), system, 3, settings=settings)
    layer_0 = [any(layer == 0 for layer, *_ in outcome.sent(epoch)) for epoch in range(4)]
    assert layer_0 == [True, False, False, False]
    assert type(make_system(system)).features == "once", "the class agrees with its yaml"


@pytest.mark.parametrize("name", ["zero_halo", "local"])
def test_controls_send_nothing_but_weights(pool, name):
    outcome = systems.run(pool, random_graph(14, vertices=30), systems.block(name), 4)
    assert {purpose for epoch in range(5) for _, _, purpose in outcome.sent(epoch)} == {"weights"}
