"""DIGEST-A in rotation equals its paper's equations, epoch by epoch, on random graphs."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import systems
from tests.oracles import bytes as count
from tests.oracles import digest
from tests.oracles.samples import RUNS, random_graph
from tests.systems import Settings

KNOBS = {
    "interval": st.integers(1, 4),
    "start": st.sampled_from(["exact", "zeros"]),
    "loss": st.sampled_from(["partition", "global"]),
    "features": st.sampled_from(["once", "refetch"]),  # exact either way, so the oracle has no such knob
    "update": st.sampled_from(["gradient", "gradient", "delta"]),
    "scale": st.sampled_from(["1", "1/M"]),
}


def rotation(parts: int, epochs: int) -> list[tuple[int, int]]:
    """Workers 0, 1, ..., M - 1 and again; each starts from the weights that its own last update was answered
    with.
    """
    return [(m, 0 if e == 0 else (e - 1) * parts + m + 1) for e in range(epochs) for m in range(parts)]


@settings(max_examples=10)
@given(knobs=st.fixed_dictionaries(KNOBS), model=st.sampled_from(["gcn", "sage"]), **RUNS)
def test_digest_a_in_rotation_equals_its_oracle(pool, knobs, model, seed, parts, directed, layers):
    epochs, graph = 7, random_graph(seed, vertices=18, directed=directed)
    how = Settings(model=systems.small(model, layers), epochs=epochs, seed=seed % 100)
    block = systems.block("digest_a", order="rotation", **knobs)
    outcome = systems.run(pool, graph, block, parts, settings=how)
    history = digest.train_async(
        graph, outcome.assignment, outcome.weights[0], rotation(parts, epochs), interval=knobs["interval"],
        update=knobs["update"], scale=1.0 if knobs["scale"] == "1" else 1 / parts, init=knobs["start"],
        loss=knobs["loss"], model=model, **how.optimiser)  # fmt: skip
    delays = [worker["metrics"][e][-1, "delay"] for e in range(epochs) for worker in outcome.workers]
    assert delays == history.delays
    # Ages of the rows used, in rounds; those of the start were computed with the weights of round 1, or are
    # zeros, which have none.
    halo = count.halo_rows(graph, outcome.assignment)
    for at, read in enumerate(history.read):
        epoch, m = divmod(at, parts)
        for layer, made in read.items():
            aged = [made[j] for j in range(parts) if halo[j, m] and (made[j] or knobs["start"] == "exact")]
            ages = [epoch + 1 - max(stamp, 1) for stamp in aged]
            told = outcome.workers[m]["metrics"][epoch]
            assert told.get((layer, "staleness")) == max(ages, default=None)
            assert not ages or told[layer, "staleness_mean"] == np.mean(ages)
    # An epoch is one round of every worker: the server's weights after M more arrivals, and the mean loss of
    # the M rounds.
    total = int(graph.train.sum())
    counts = [int((graph.train & (outcome.assignment == m)).sum()) for m in range(parts)]
    shares = np.array(counts) / total if knobs["loss"] == "partition" else np.ones(parts)
    history.losses = [float(shares @ history.losses[e * parts : (e + 1) * parts]) for e in range(epochs)]
    history.weights_after = history.weights_after[parts - 1 :: parts]
    systems.assert_trained_alike(outcome, history)


def test_the_servers_clock_goes_on_where_a_run_is_resumed(pool):
    graph = random_graph(6, vertices=30)
    outcome = systems.run(
        pool, graph, systems.block("digest_a", interval=2), 3, settings=Settings(epochs=8, stop_at=5)
    )
    when = np.array([[worker["metrics"][e][-1, "server_s"] for worker in outcome.workers] for e in range(8)])
    assert (when > 0).all() and (when == when[:, :1]).all() and (np.diff(when[:, 0]) > 0).all()
