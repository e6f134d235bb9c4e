"""The oracle of DIGEST against torch's autograd and Adam, and DIGEST-A by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import dense, digest
from tests.oracles.samples import DEEP, assert_same_run, differs, random_blocks, random_graph, random_weights

KNOBS = {
    "interval": st.integers(1, 4),
    "schedule": st.sampled_from(["shifted", "literal"]),
    "init": st.sampled_from(["exact", "zeros"]),
    "loss": st.sampled_from(["partition", "global"]),
    "agg": st.sampled_from(["mean", "weighted", "gradients"]),
    "model": st.sampled_from(["gcn", "sage"]),
    "normalisation": st.sampled_from(["symmetric", "row"]),
}


def replay_in_torch(
    graph, assignment, weights, *, rounds, version, init, loss, agg, model, normalisation, lr, decay
):
    """Losses and weights: a model and a torch.optim.Adam for every part, remote hidden rows those of
    `version(r)`.
    """
    operator = torch.tensor(dense.operator_of(dense.adjacency(graph), model, normalisation))
    own = torch.tensor(assignment[:, None] == assignment[None, :]).double()
    labels, layers = torch.tensor(graph.labels, dtype=torch.int64), dense.num_layers(weights)
    parts, total = int(assignment.max()) + 1, int(graph.train.sum())
    copies = 1 if agg == "gradients" else parts
    models = [
        {name: torch.tensor(w, requires_grad=True) for name, w in weights.items()} for _ in range(copies)
    ]
    optimisers = [torch.optim.Adam(model_.values(), lr=lr, weight_decay=decay) for model_ in models]

    def forward(w, halo):
        h, seen = torch.tensor(graph.features, dtype=torch.float64), []
        for l in range(layers):
            seen.append(h.detach().clone())
            far = h if halo is None or l == 0 else halo[l]
            z = ((operator * own) @ h + (operator * (1 - own)) @ far) @ w[f"layers.{l}.weight"]
            z = z + w[f"layers.{l}.bias"] + (h @ w[f"layers.{l}.root"] if model == "sage" else 0.0)
            h = torch.relu(z) if l + 1 < layers else z
        return h, seen

    start = forward(models[0], None)[1]
    stored = {0: start if init == "exact" else [torch.zeros_like(h) for h in start]}
    losses, after = [], []
    for r in range(1, rounds + 1):
        mean, overall = [], 0.0
        for optimiser in optimisers:
            optimiser.zero_grad()
        for m in range(parts):
            w = models[m % copies]
            logits, stored[r] = forward(w, stored[version(r)])
            mine = torch.tensor(np.flatnonzero(graph.train & (assignment == m)))
            own_sum = torch.nn.functional.cross_entropy(logits[mine], labels[mine], reduction="sum")
            share = 1 / parts if agg == "gradients" and loss == "partition" else 1.0
            (share * own_sum / (max(len(mine), 1) if loss == "partition" else total)).backward()
            overall += own_sum.item() / total
            mean.append(len(mine) / total if agg == "weighted" else 1 / copies)
        for optimiser in optimisers:
            optimiser.step()
        with torch.no_grad():
            for name in weights:
                averaged = sum(share * model_[name] for share, model_ in zip(mean, models))
                for model_ in models:
                    model_[name].copy_(averaged)
        losses.append(overall)
        after.append({name: value.detach().numpy().copy() for name, value in models[0].items()})
    return losses, after


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), parts=st.integers(2, 4), knobs=st.fixed_dictionaries(KNOBS))
def test_stale_rounds_agree_with_autograd_and_torch_s_adam(seed, parts, knobs):
    graph, weights = random_graph(seed), random_weights(seed, knobs["model"], widths=DEEP)
    blocks, n = random_blocks(seed, graph.num_vertices, parts), knobs["interval"]
    run = digest.train(graph, blocks, weights, epochs=7, lr=0.02, weight_decay=0.01, **knobs)
    if knobs["schedule"] == "shifted":
        version = lambda r: (r - 1) // n * n
    elif n == 1:
        version = lambda r: r - 1
    else:  # pulled in round ⌊r/N⌋ N, pushed N - 1 rounds before that
        version = lambda r: max(r // n * n - n + 1, 0)
    settings_ = {k: v for k, v in knobs.items() if k not in ("interval", "schedule")}
    losses, after = replay_in_torch(
        graph, blocks, weights, rounds=7, version=version, lr=0.02, decay=0.01, **settings_
    )
    np.testing.assert_allclose(run.losses, losses, rtol=1e-7)
    for ours, theirs in zip(run.weights_after, after):
        for name in weights:
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, atol=1e-7, err_msg=name)


# --- DIGEST-A
# ---------------------------------------------------------------------------------------------------------


@settings(max_examples=10)
@given(
    seed=st.integers(0, 10**6),
    parts=st.integers(1, 4),
    interval=st.integers(1, 3),
    init=st.sampled_from(["exact", "zeros"]),
    loss=st.sampled_from(["partition", "global"]),
    model=st.sampled_from(["gcn", "sage"]),
)
def test_arrivals_in_lockstep_scaled_by_one_over_m_are_digest(seed, parts, interval, init, loss, model):
    graph, weights = random_graph(seed), random_weights(seed, model, widths=DEEP)
    blocks = random_blocks(seed, graph.num_vertices, parts)
    how = dict(interval=interval, init=init, loss=loss, model=model, lr=0.02, weight_decay=0.01)
    order = np.random.default_rng(seed)
    arrivals = [(int(m), r * parts) for r in range(5) for m in order.permutation(parts)]
    run = digest.train_async(graph, blocks, weights, arrivals, update="delta", scale=1 / parts, **how)
    rounds = digest.train(graph, blocks, weights, epochs=5, agg="mean", **how)
    for r in range(5):
        for name in weights:
            np.testing.assert_allclose(
                run.weights_after[r * parts + parts - 1][name],
                rounds.weights_after[r][name],
                rtol=1e-9,
                atol=1e-12,
            )
    np.testing.assert_allclose(run.logits, rounds.logits, rtol=1e-8, atol=1e-10)
    assert run.delays == 5 * list(range(parts))


def test_the_server_adds_each_delta_to_what_it_has_then():
    graph, weights = random_graph(10), random_weights(11)
    blocks, how = random_blocks(12, graph.num_vertices, 2), dict(interval=2, lr=0.02, update="delta")
    late = digest.train_async(graph, blocks, weights, [(0, 0), (0, 1), (1, 0)], **how)
    alone = digest.train_async(graph, blocks, weights, [(1, 0)], **how)
    # worker 1 started from the initial weights, as if there had been no worker 0
    for name, w in weights.items():
        delta = late.weights_after[2][name] - late.weights_after[1][name]
        np.testing.assert_allclose(delta, alone.weights_after[0][name] - w, atol=1e-12)
    assert late.delays == [0, 0, 2]
    half = digest.train_async(graph, blocks, weights, [(1, 0)], scale=0.5, **how)
    for name, w in weights.items():
        np.testing.assert_allclose(2 * (half.weights[name] - w), alone.weights[name] - w, atol=1e-12)
    with pytest.raises(AssertionError):
        digest.train_async(graph, blocks, weights, [(0, 1)], **how)


def test_a_pull_sees_the_pushes_that_arrived_before_its_download_or_those_it_is_said_to_have_seen():
    graph, weights = random_graph(13), random_weights(14)
    blocks, how = random_blocks(15, graph.num_vertices, 2), dict(interval=1, init="zeros", lr=0.02)
    # worker 1 arrives third in each; what it read of worker 0: 2 pushes, 1, or none
    losses = {
        base: digest.train_async(graph, blocks, weights, [(0, 0), (0, 1), (1, base)], **how).losses[2]
        for base in (0, 1, 2)
    }
    told = {}
    for seen in (0, 1, 2):
        arrivals = [(0, 0), (0, 1), (1, 2, {1: [seen, 0]})]
        told[seen] = digest.train_async(graph, blocks, weights, arrivals, **how).losses[2]
    assert told[2] == losses[2] and len(set(told.values())) == 3 and len(set(losses.values())) == 3
    blind = digest.train(graph, blocks, weights, interval=1, init="zeros", epochs=1, lr=0.02)
    assert losses[0] == pytest.approx(blind.local_losses[0][1], rel=1e-12)


def test_two_rounds_under_way_at_once_read_each_others_rows_of_a_layer_each():
    """Rows are pushed layer by layer: part 0 may read part 1's of layer 2 and part 1 those of part 0."""
    graph, weights = random_graph(16), random_weights(17, widths=DEEP)
    blocks, how = random_blocks(18, graph.num_vertices, 2), dict(interval=1, lr=0.02)
    crossed = [(0, 0, {1: [0, 0], 2: [0, 1]}), (1, 0, {1: [0, 0], 2: [1, 0]})]
    apart = [(0, 0), (1, 0)]
    # The first rounds compute what an exact start holds already; beside zeros they are another matter.
    for init, same in (("exact", True), ("zeros", False)):
        one, two = (digest.train_async(graph, blocks, weights, each, init=init, **how).losses
                    for each in (crossed, apart))  # fmt: skip
        assert [a == pytest.approx(b, rel=1e-12) for a, b in zip(one, two)] == [same, same]


@settings(max_examples=10)
@given(
    seed=st.integers(0, 10**6),
    parts=st.integers(1, 4),
    scale=st.sampled_from([1.0, 0.25]),
    loss=st.sampled_from(["partition", "global"]),
    model=st.sampled_from(["gcn", "sage"]),
)
def test_torchs_adam_steps_on_gradients_in_the_order_of_their_arrival(seed, parts, scale, loss, model):
    """Without hidden layers nothing is stale but the weights at which a gradient was computed."""
    graph, weights = random_graph(seed), random_weights(seed, model, widths=[5, 3])
    blocks, rng = random_blocks(seed, graph.num_vertices, parts), np.random.default_rng(seed)
    arrivals = [(int(rng.integers(parts)), int(rng.integers(number + 1))) for number in range(9)]
    how = dict(interval=1, scale=scale, loss=loss, model=model, lr=0.02, weight_decay=0.01)
    run = digest.train_async(graph, blocks, weights, arrivals, **how)
    parameters = {name: torch.tensor(w, requires_grad=True) for name, w in weights.items()}
    adam = torch.optim.Adam(parameters.values(), lr=0.02, weight_decay=0.01)
    served, operator = [weights], dense.operator_of(dense.adjacency(graph), model, "symmetric")
    for m, base in arrivals:
        mine = graph.train & (blocks == m)
        count = max(int(mine.sum()), 1) if loss == "partition" else int(graph.train.sum())
        x = graph.features.astype(np.float64)
        gradients = dense.loss_and_gradients(operator, x, graph.labels, mine, count, served[base], model)[1]
        for name, parameter in parameters.items():
            parameter.grad = torch.tensor(scale * gradients[name])
        adam.step()
        served.append({name: value.detach().numpy().copy() for name, value in parameters.items()})
    for ours, theirs in zip(run.weights_after, served[1:], strict=True):
        for name in weights:
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-9, atol=1e-12)
    assert run.delays == [number - base for number, (_, base) in enumerate(arrivals)]


@pytest.mark.parametrize("update", ["gradient", "delta"])
def test_a_round_that_came_too_late_changes_nothing_but_what_others_read_of_it(update):
    graph, weights = random_graph(16), random_weights(17)
    blocks = random_blocks(18, graph.num_vertices, 2)
    how = dict(interval=1, init="zeros", lr=0.02, update=update)
    arrivals, late = [(0, 0), (1, 0, {1: [1, 0]}), (0, 2)], [(1, 2, {1: [0, 0]})]
    alone = digest.train_async(graph, blocks, weights, arrivals, **how)
    assert_same_run(digest.train_async(graph, blocks, weights, arrivals, late=late, **how), alone)
    # The last arrival has read what part 1 pushed in its second round, which the server did not take in.
    read = [*arrivals[:2], (0, 2, {1: [0, 2]})]
    run = digest.train_async(graph, blocks, weights, read, late=late, **how)
    assert run.read[2] == {1: [0, 2]} and run.losses[:2] == alone.losses[:2] and differs(run, alone)
