"""DIGEST-A in order of arrival: whoever comes first, a run is the replay of what its server received.

Workers run apart, and each notes what it did: at which weights it computed, what it read in the store, and
which update of the weights it made. Nothing is said of when they do it, so every order is a valid one.
"""

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.dev.conformance.runs import make_trainer, snapshot
from systems.digest_a import DigestA
from tests import systems
from tests.oracles import digest
from tests.oracles.samples import random_blocks, random_graph


@dataclass
class Noted(DigestA):
    """Notes every round, and uploads in about the order of `turns`: [epochs x P] ranks.

    meeting   updates that the server has when the workers meet: by then nobody may be waiting for a turn
    """

    turns: list[int] = field(default_factory=list)
    meeting: int = 0

    def __post_init__(self):
        super().__post_init__()
        self.rounds: list[dict[str, Any]] = []

    def turn(self) -> int:
        """How many updates the server has when it is this worker's turn; after its last turn, all."""
        mine = [at for at, rank in enumerate(self.turns) if rank == self.comm.rank]
        made = sum(each["update"] is not None for each in self.rounds)
        return mine[made] if made < len(mine) else len(self.turns)

    def combine(self, parameters):
        super().combine(parameters)
        owners = [j for j, rows in enumerate(self.shard.halo_counts.tolist()) if rows]
        stamps = {layer: dict(zip(owners, read)) for layer, read in self.representations.read.items()}
        self.rounds.append({"base": self.version, "at": self.weights.clone(), "stamp": self.now,
                            "read": stamps, "update": None})  # fmt: skip

    def after_epoch(self, epoch):
        deadline = time.monotonic() + 60
        while self.server.read()[1] < min(self.turn(), self.meeting):
            assert time.monotonic() < deadline, "all workers wait for their turns"
        super().after_epoch(epoch)
        self.rounds[-1]["update"] = self.recorder.epoch.metrics.get((-1, "update"))
        self.rounds[-1]["delay"] = self.recorder.epoch.metrics.get((-1, "delay"))


def whole_run(comm, knobs, how, meetings, shard) -> dict[str, Any]:
    """Train as the workers of a run do. `meetings` are the epochs at which they meet: from each but the last,
    which ends the run, they go on with a new trainer and a state dict."""
    torch.set_default_dtype(torch.float64)
    try:
        state, rounds, losses, served = None, [], [], []
        for meeting in meetings:
            block = {"_target_": f"{__name__}.Noted", **knobs, "meeting": meeting * comm.size}
            trainer = make_trainer(comm, block, how, shard)
            trainer.system.rounds = rounds
            if state is None:
                first = snapshot(trainer)
            else:
                trainer.load_state_dict(state)
            done = 0
            while done < meeting:
                losses.append(float(trainer.train_epoch(trainer.next_epoch)))
                done = trainer.system.epochs_done(comm.recorder.epoch.epoch)
            for epoch in range(len(served), meeting):
                with trainer.system.evaluation_weights(epoch):
                    served.append(values(trainer))
            comm.barrier()
            state = trainer.state_dict()
            comm.barrier()
            trainer.closing.close()
        return {"first": first, "losses": losses, "rounds": rounds, "served": served}
    finally:
        torch.set_default_dtype(torch.float32)


def values(trainer) -> dict[str, np.ndarray]:
    return {name: value.detach().numpy().copy() for name, value in trainer.model.named_parameters()}


@st.composite
def orders(draw) -> tuple[int, list[int], list[int]]:
    """Workers, whose turn each update is, and the epochs at which they meet."""
    parts, epochs = draw(st.integers(2, 4)), 5
    turns = draw(st.lists(st.integers(0, parts - 1), min_size=parts * epochs, max_size=parts * epochs))
    return parts, turns, sorted({*draw(st.lists(st.integers(1, epochs - 1), max_size=2)), epochs})


@settings(max_examples=6)
@given(order=orders(), seed=st.integers(0, 10_000), interval=st.integers(1, 3), layers=st.integers(2, 3),
       update=st.sampled_from(["gradient", "gradient", "delta"]), scale=st.sampled_from(["1", "1/M"]),
       start=st.sampled_from(["exact", "zeros"]), loss=st.sampled_from(["partition", "global"]),
       model=st.sampled_from(["gcn", "sage"]))  # fmt: skip
def test_a_run_is_the_replay_of_what_its_server_received(
        pool, order, seed, interval, layers, update, scale, start, loss, model):  # fmt: skip
    (parts, turns, meetings), graph = order, random_graph(seed, vertices=18)
    blocks = random_blocks(seed, 18, parts)
    knobs = {"interval": interval, "update": update, "scale": scale, "start": start, "loss": loss}
    how = systems.Settings(systems.small(model, layers), epochs=meetings[-1], seed=seed % 100)
    workers = pool.run(whole_run, parts, {**knobs, "turns": turns}, how, meetings,
                       per_worker=systems.shards_of(graph, blocks, parts))  # fmt: skip

    # Exactly epochs x P updates, each from the weights that the worker's own last one was answered with.
    notes = [worker["rounds"] for worker in workers]
    updates = sorted(each["update"] for rounds in notes for each in rounds if each["update"] is not None)
    assert updates == list(range(len(turns)))
    for rounds in notes:
        answered = [0, *(each["update"] + 1 for each in rounds if each["update"] is not None)]
        assert [each["base"] for each in rounds] == answered[: len(rounds)]
        assert len(answered) >= len(rounds), "a worker goes on after the last update"

    # A push's stamp says of which of its owner's rounds it is; 0 is the start.
    pushed = [{0: 0} | {each["stamp"]: k for k, each in enumerate(rounds, 1) if k % interval == 0}
              for rounds in notes]  # fmt: skip

    def replayed(m: int, each: dict) -> tuple[int, int, dict]:
        read = {layer: [pushed[j][stamps[j]] if j in stamps else 0 for j in range(parts)]
                for layer, stamps in each["read"].items()}  # fmt: skip
        return m, each["base"], read

    made = [(m, each) for m, rounds in enumerate(notes) for each in rounds]
    arrivals = sorted((each["update"], m, each) for m, each in made if each["update"] is not None)
    late = [replayed(m, each) for m, each in made if each["update"] is None]
    history = digest.train_async(
        graph, blocks, workers[0]["first"], [replayed(m, each) for _, m, each in arrivals], late=late,
        interval=interval, update=update, scale=1.0 if scale == "1" else 1 / parts, init=start, loss=loss,
        model=model, **how.optimiser)  # fmt: skip

    assert [each["delay"] for _, _, each in arrivals] == history.delays
    once = [workers[0]["first"], *history.weights_after]
    for m, each in made:
        assert_alike(each["at"], once[each["base"]])
    for worker in workers:
        for epoch, weights in enumerate(worker["served"]):
            assert_alike(flat(weights), once[(epoch + 1) * parts])
    total = int(graph.train.sum())
    for m, worker in enumerate(workers):
        own = int((graph.train & (blocks == m)).sum()) if loss == "partition" else total
        told = zip(notes[m], worker["losses"], strict=True)
        told = [local for each, local in told if each["update"] is not None]
        want = [local * own / total for (_, k, _), local in zip(arrivals, history.losses) if k == m]
        np.testing.assert_allclose(told, want, rtol=1e-6)


def flat(weights: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([value.ravel() for value in weights.values()])


def assert_alike(have: np.ndarray, want: dict[str, np.ndarray]) -> None:
    np.testing.assert_allclose(have, flat(want), rtol=1e-6, atol=1e-9)
