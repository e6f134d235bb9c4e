"""DIGEST (Algorithm 1) and DIGEST-A: hidden rows of other parts come from a store that is renewed every N
rounds.

Rounds r count from 1, as in the paper; element r - 1 of a list of the history belongs to round r. Layers l
count from 0 and H[l] is what layer l reads. The store holds H[1], ..., H[L-1] of every vertex (equation 7);
halo features H[0] are fetched once and exact. Round r, every part m at once, from common weights W^(r) (line
4):

    pull      where due, part m's copy of the remote hidden rows := the store
    forward   equation (5): own rows fresh, remote rows from the copy, Â of the whole graph (not CONCAT, no l2
              norm)
    backward  of part m's own loss; the copy is constant: no gradient leaves a part
    push      where due, the store := the own hidden rows of THIS round's forward pass (computed with W^(r))
    AGG       W^(r+1) (line 13)

schedule = "shifted": push at the end of round r when r % N == 0, pull at the start of round r + 1: round r
reads what
    was pushed in round ((r-1) // N) N, 1 to N rounds old (0 is the initial store).
schedule = "literal": pull in round r when r % N == 0 (lines 5-6), push when (r - 1) % N == 0 (lines 9-10). A
pull never
    sees a push of its own round. Rounds r >= N read rows N-1 to 2N-2 rounds old (1 when N = 1).
Before the first pull either schedule reads the initial store: init = "exact", a forward pass of the whole
graph with the initial weights, or "zeros".

loss = "partition": part m minimises the mean over its own training vertices (equation 3; a part without any
has loss
    and gradient 0); "global": their sum divided by the number of training vertices of the whole graph.
agg = "mean": every part takes one Adam step from W^(r) with moments of its own, kept for ever, and W^(r+1) is
the mean
    of the parts' weights. "weighted": the same, weighted by the parts' training vertices. "gradients": one
    common Adam step with the mean of the parts' gradients, or, where the loss is global, with their sum.
    "weighted gradients": the same, the mean weighted by the parts' training vertices.

DIGEST-A (`train_async`): a worker downloads the server's weights W^(b), computes its loss and gradient g at
them, and uploads. The server takes what arrives as its update t > b, whatever came between:

    update = "gradient"  W^(t) = a step of the server's one Adam from W^(t-1) with scale * g, for the plain
                         step in Theorem 3's proof. Weight decay is of W^(t-1), the weights that are changed.
    update = "delta"     W^(t) = W^(t-1) + scale * (w - W^(b)), w = a step from W^(b) of the worker's own Adam
                         with g.
"""

from dataclasses import dataclass, field
from functools import cache

import numpy as np

from tests.oracles import dense
from tests.oracles.dense import Adam, History, Weights, num_layers
from tests.oracles.split import Training


@dataclass
class AsyncHistory(History):
    """By arrival: the part's loss and gradients, the server's weights_after, and

    delays  arrivals since the download
    read    {layer: [M]} by owner the owner's own round whose rows the part's copy held; 0: the initial store
    """

    delays: list[int] = field(default_factory=list)
    read: list[dict[int, list[int]]] = field(default_factory=list)


class Parts(Training):
    """What a part computes in one round."""

    def __init__(self, graph, assignment, weights, loss: str, **how):
        assert loss in ("partition", "global")
        super().__init__(graph, assignment, weights, **how)
        self.loss, self.number = loss, len(self.parts)
        self.train = [graph.train & (assignment == m) for m in self.parts]

    def initial_store(self, init: str, weights: Weights) -> list[np.ndarray]:
        """[L] rows [V, f_l]; at 0 the features, which are not in the store but always at hand."""
        assert init in ("exact", "zeros"), init
        h = dense.forward(self.operator, self.x, weights, self.model)[0][:-1]
        return h if init == "exact" else [self.x] + [np.zeros_like(rows) for rows in h[1:]]

    def round(self, m: int, weights: Weights, copy: list) -> tuple[float, Weights, list]:
        """(loss, gradients, H[:L]) of part m; of H only its own rows mean anything."""
        count = max(int(self.train[m].sum()), 1) if self.loss == "partition" else self.count
        data = (self.own, self.x, self.graph.labels, self.train[m], count, weights, self.model)
        loss, gradients, h = dense.one_pass(*data, lambda l, _: self.remote @ copy[l], dense.nothing)
        return loss, gradients, h[:-1]


class Aggregate:
    """Line 12 and AGG of line 13: `step(weights, gradients by part)` gives the next common weights."""

    def __init__(self, agg: str, parts: Parts, lr: float, weight_decay: float):
        assert agg in ("mean", "weighted", "gradients", "weighted gradients"), agg
        self.common = agg.endswith("gradients")
        self.adams = [Adam(lr, weight_decay) for _ in range(parts.number)]
        self.shares = [1 / parts.number] * parts.number
        if agg.startswith("weighted"):
            self.shares = [int(train.sum()) / parts.count for train in parts.train]
        if self.common and parts.loss == "global":
            self.shares = [1.0] * parts.number

    def step(self, weights: Weights, gradients: list[Weights]) -> Weights:
        if self.common:
            return self.adams[0].step(weights, weighted_sum(self.shares, gradients))
        return weighted_sum(self.shares, [adam.step(weights, g) for adam, g in zip(self.adams, gradients)])


def weighted_sum(shares: list[float], terms: list[Weights]) -> Weights:
    return {name: sum(share * term[name] for share, term in zip(shares, terms)) for name in terms[0]}


def train(
    graph, assignment: np.ndarray, weights: Weights, *, interval: int, schedule: str = "shifted",
    init: str = "exact", loss: str = "partition", agg: str = "gradients", **how,
) -> History:  # fmt: skip
    """`epochs` rounds over the parts of `assignment` [V]. Losses are means over all training vertices,
    whatever the parts minimise; gradients are of every round, by part."""
    assert schedule in ("shifted", "literal") and interval >= 1
    parts, history = Parts(graph, assignment, weights, loss, **how), History()
    store = parts.initial_store(init, dense.as_float64(weights))
    copy = store  # what the parts have pulled of it

    def round_step(epoch, weights):
        nonlocal store, copy
        r = epoch + 1
        first, last = (r - 1) % interval == 0, r % interval == 0
        if first if schedule == "shifted" else last:  # PULL
            copy = store
        steps = [parts.round(m, weights, copy) for m in range(parts.number)]
        if last if schedule == "shifted" else first:  # PUSH
            owned = [(assignment == m)[:, None] for m in range(parts.number)]
            store = [sum(own * h[l] for own, (_, _, h) in zip(owned, steps)) for l in range(len(store))]
        counts = [int(t.sum()) if loss == "partition" else parts.count for t in parts.train]
        overall = sum(n * local for n, (local, _, _) in zip(counts, steps)) / parts.count
        return overall, [gradients for _, gradients, _ in steps]

    parts.optimiser = Aggregate(agg, parts, how["lr"], how.get("weight_decay", 0.0))
    return parts.run(round_step, history)


def train_async(
    graph, assignment: np.ndarray, weights: Weights, arrivals: list[tuple], *, late: list[tuple] = (),
    interval: int, update: str = "gradient", scale: float = 1.0, init: str = "exact",
    loss: str = "partition", lr: float, weight_decay: float = 0.0, **how,
) -> AsyncHistory:  # fmt: skip
    """DIGEST-A. `arrivals`, in order: (worker, base), base the number of arrivals that the server had taken
    in when the worker downloaded the weights at which it computed.

    A worker's own rounds k count from 1. It pulls in rounds k with (k - 1) % N == 0, right after the
    download, and pushes in rounds k with k % N == 0, before the upload. A pull sees exactly the pushes of
    arrivals 1..base. Where the store was read otherwise, (worker, base, read) says what the copy holds:
    {layer: [M]}, by owner the owner's own round, 0 the initial store. `late` are rounds like these that came
    after the last arrival: the server took in none, but other parts may have read what they pushed.
    """
    assert update in ("gradient", "delta")
    parts = Parts(graph, assignment, weights, loss, epochs=0, lr=lr, weight_decay=weight_decay, **how)
    history = AsyncHistory()
    first, layers = dense.as_float64(weights), num_layers(weights)
    initial = parts.initial_store(init, first)
    common, own = Adam(lr, weight_decay), [Adam(lr, weight_decay) for _ in range(parts.number)]
    rounds = [[each for each in [*arrivals, *late] if each[0] == m] for m in range(parts.number)]

    def read_by(m: int, k: int) -> dict[int, list[int]]:
        """What part m's copy holds in its round k, by layer and owner: the owner's round."""
        _, base, *told = rounds[m][(k - 1) // interval * interval]
        done = [sum(worker == j for worker, *_ in arrivals[:base]) for j in range(parts.number)]
        return told[0] if told else {l: [k // interval * interval for k in done] for l in range(1, layers)}

    @cache
    def computed(m: int, k: int, upto: int) -> tuple[float, Weights, list]:
        """Part m's round k, of which H[:upto + 1] is right: rows are pushed and pulled layer by layer, so two
        rounds under way at once may each read the other's, but of a lower layer only."""
        copy = [np.copy(rows) for rows in initial]
        for l, owners in read_by(m, k).items():
            for j in set(range(parts.number)) - {m} if l < upto else ():
                rows = computed(j, owners[j], l)[2] if owners[j] else initial
                copy[l][assignment == j] = rows[l][assignment == j]
        return parts.round(m, served[rounds[m][k - 1][1]], copy)

    served = [first]  # the server's weights after 0, 1, ... arrivals
    made = [0] * parts.number  # rounds, by part
    for number, (m, base, *_) in enumerate(arrivals, start=1):
        assert 0 <= base < number, "a worker cannot start from weights that are not there yet"
        made[m] += 1
        local, gradients, _ = computed(m, made[m], layers)
        if update == "gradient":
            after = common.step(served[-1], {name: scale * g for name, g in gradients.items()})
        else:
            stepped = own[m].step(served[base], gradients)
            after = {name: w + scale * (stepped[name] - served[base][name]) for name, w in served[-1].items()}
        served.append(after)
        history.losses.append(local)
        history.gradients.append(gradients)
        history.delays.append(number - 1 - base)
        history.read.append(read_by(m, made[m]))
    history.weights_after = served[1:]
    parts.weights = served[-1]
    return parts.run(None, history)
