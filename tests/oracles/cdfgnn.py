"""CDFGNN (Zhang, Jiang, You, 2024): Algorithm 1 with the adaptive vertex cache of Algorithm 2, all p workers
in one process.

Edges have owners, vertices have replicas: Â = Σ_i Â_i, where Â_i holds the entries of worker i's edges (with
the whole graph's degrees) and the diagonal entries of its masters. What is synchronised is the same at all
replicas, so there is one Z^(l), one H^(l), one δ^(l); the parts (two dots in the paper) are a worker's own.
Layer l = 0..L-1 maps H[l] to H[l + 1]:

    Z̈_i = Â_i H[l] W[l],  Z[l + 1] = sync_i(Z̈_i) + b[l] (+ H[l] R[l] for GraphSAGE)                      (1)
    H[l + 1] = ReLU(Z[l + 1]), and H[L] = Z[L] are the logits                                            (2)

    δ̈_i[L] = ∂loss/∂Z[L] in the rows of i's masters, 0 in others;   δ[l + 1] = sync_i(δ̈_i[l + 1])
    δ̈_i[l] = (Â_iᵀ δ[l + 1] W[l]ᵀ (+ δ̈_i[l + 1] R[l]ᵀ)) ⊙ ReLU'(Z[l])
    (3), in shapes that fit ∂W[l] = Σ_i (Â_i H[l])ᵀ δ[l + 1]
    (4) ∂b[l] = Σ_i column sums of δ̈_i[l + 1],  ∂R[l] = Σ_i H[l]ᵀ δ̈_i[l + 1]   (b and R come after the sync:
    nothing stale)

sync (Algorithm 2), apart for every l and direction, from z̃_i = 0, z̃ = 0, y = 0. The row z_i of a replica is
FRESH when

    ‖z_i - z̃_i‖∞ > ε ‖z̃_i‖∞                              (lines 4, 13)

    mirror i, FRESH:  sends m = D(z_i - z̃_i);  z̃_i += m at itself, z̃ += m at the master
                      (5, 6, 10)
    master i, FRESH:  z̃ += z_i - z̃_i;  z̃_i = z_i
                      (14, 15)
    any of them FRESH: the master sends its sum z̃ to all mirrors, and all replicas compute with
    (18)
        y = D(z̃) (scatter "value"),  y += D(z̃ - y) ("diff"),  y = z̃ ("fp32")

so z̃ = Σ_i z̃_i always. Line 6 as printed (z̃_i = z_i at a mirror) would break that where D is not the
identity. A vertex without mirrors has y = z_i in every epoch. cache = False: every part is FRESH, with z̃_i =
z̃ = y = 0 again in every epoch, so all is sent whole.

D = dequantise(quantise(.)) row by row, the identity without `quantise`:

    q = floor((2^B - 1)(m - min m) / (max m - min m) + 1/2)                                              (22)
    D(m) = (max m - min m) / (2^B - 1) q + min m,  and D(m) = m where max m = min m                      (23)

With a cache, after every epoch, with the training accuracy `acc` of its own logits, its mean starting at the
first of them,

    rule "prose":    acc < mean - μ1: ε = max(λ2 ε, ε - ξ);              acc > mean + μ2: ε = min(λ1 ε, ε + ξ)
    rule "literal":  acc < mean - μ1 and ε < ν1: ε = min(λ1 ε, ε + ξ);   acc > mean + μ2 and ε > ν2: ε =
                     max(λ2 ε, ε - ξ)   (6)
    ε clamped to [ν2, ν1];  mean = momentum mean + (1 - momentum) acc
                            (7)

features = "once": Â X is exact from the start, Z[1] = Â X W[0] + ..., and ∂W[0] = Σ_i (Â X)ᵀ δ̈_i[1]; layer 0
synchronises nothing.

Decisions and rounding. Two programs that round differently may decide otherwise about a row for which (4) is
an equality, or for which (22) is at a half. For generic values neither has a chance, with one exception: a
row whose z_i has become exactly 0 (all its ReLUs dead) is sent again and again until z̃_i is 0, or 1e-19 and
sent once more. That last message counts (`Messages` counts such rows apart), and under scatter "diff" it
matters: whatever makes the row active brings y nearer to z̃. From such an epoch on, a run is not `certain`.
"""

from dataclasses import dataclass, field

import numpy as np

from tests.oracles.dense import History, Weights, loss_and_delta, score
from tests.oracles.split import Training, owners


@dataclass
class Messages:
    """Rows of one synchronisation, at least and at most (the difference hangs on rounding)."""

    gathered: tuple[int, int]  # parts sent, from mirrors to masters
    scattered: tuple[int, int]  # sums sent, from masters to each of their mirrors
    zeros: tuple[int, int]  # of both kinds: not sent, since the row is 0 and so is what was sent last
    possible: int  # of both kinds


@dataclass
class CdfgnnHistory(History):
    """epsilon[e]          the threshold during epoch e
    messages[e][l, way]   of every synchronisation, way "forward" or "backward"
    certain               epochs before the first one in which rounding decides something that matters
    """

    epsilon: list[float] = field(default_factory=list)
    messages: list[dict] = field(default_factory=list)
    certain: int = 0


def quantised(m: np.ndarray, bits: int) -> np.ndarray:
    """D(m): every row to `bits` bits and back, (22) and (23)."""
    low, high, top = m.min(axis=-1, keepdims=True), m.max(axis=-1, keepdims=True), 2**bits - 1
    spread = high - low
    q = np.floor(top * (m - low) / np.where(spread > 0, spread, 1.0) + 0.5)
    return np.where(spread > 0, spread / top * q + low, m)


def parts_of(operator: np.ndarray, edges, master: np.ndarray) -> np.ndarray:
    """[p, V, V] Â_i: every off-diagonal entry at the owner of its (undirected) edge, the diagonal at the
    masters.
    """
    owner = owners(len(operator), edges)
    np.fill_diagonal(owner, master)
    assert (owner[operator != 0] >= 0).all(), "an entry that no worker owns"
    return np.array([np.where(owner == i, operator, 0.0) for i in range(edges.parts)])


class Synchronised:
    """The replicas' rows of one matrix: `is_master`, `is_mirror` [p, V]; z̃_i [p, V, F], z̃ and y [V, F]."""

    def __init__(self, is_master, is_mirror, width: int, dequantised, cache: bool, scatter: str):
        self.is_master, self.is_mirror = is_master, is_mirror
        self.dequantised, self.cache, self.scatter = dequantised, cache, scatter
        self.width, self.been_fresh, self.certain, self.scale = width, np.zeros_like(is_master), True, 0.0
        self.empty()

    def empty(self) -> None:
        parts, vertices = self.is_master.shape
        self.cached = np.zeros((parts, vertices, self.width))
        self.total, self.used = np.zeros((2, vertices, self.width))

    def synchronise(self, z: np.ndarray, epsilon: float) -> tuple[np.ndarray, Messages]:
        """The rows that all replicas compute with, from the parts z [p, V, F]."""
        replica, mirrors = self.is_master | self.is_mirror, self.is_mirror.sum(axis=0)
        assert not z[~replica].any()
        if not self.cache:
            self.empty()
        change, size = np.abs(z - self.cached).max(axis=2), np.abs(self.cached).max(axis=2)
        fresh = change > epsilon * size
        # In doubt: an equality but for rounding, unless both sides are 0 because the row has never been
        # anything else.
        doubt = (np.abs(change - epsilon * size) <= 1e-12 * np.abs(z).max()) & (
            self.been_fresh | (change > 0)
        )
        self.been_fresh |= fresh
        if not self.cache:
            doubt, fresh = np.zeros_like(replica), replica
        sent = fresh & self.is_mirror
        message = np.where(sent[:, :, None], self.dequantised(z - self.cached), 0.0)
        own = np.where((fresh & self.is_master)[:, :, None], z - self.cached, 0.0)
        self.cached = self.cached + message + own
        self.total = self.total + (message + own).sum(axis=0)
        active = fresh.any(axis=0)
        if self.scatter == "value":
            new = self.dequantised(self.total)
        elif self.scatter == "diff":
            new = self.used + self.dequantised(self.total - self.used)
        else:
            new = self.total
        surely, perhaps = fresh & ~doubt, fresh | doubt
        moves = (np.abs(new - self.used) > 1e-12 * np.abs(new).max()).any(axis=1) & (mirrors > 0)
        self.certain &= not (moves & perhaps.any(axis=0) & ~surely.any(axis=0)).any()
        self.used = np.where(active[:, None], new, self.used)
        self.used = np.where((mirrors == 0)[:, None], z.sum(axis=0), self.used)

        def gathered(rows) -> int:
            return int((rows & self.is_mirror).sum())

        def scattered(rows) -> int:
            return int(mirrors[(rows & replica).any(axis=0)].sum())

        def zeros(own, sums) -> int:
            unsent = (own & self.is_master).any(axis=0) & sums
            return gathered(own) + int(mirrors[unsent].sum()) if self.cache else 0

        # A part that is 0 and has never been sent is 0 in any arithmetic, and so is a sum of such parts. One
        # that has been sent may have come back to 0, or to within rounding of it.
        self.scale = max(self.scale, np.abs(z).max())
        still, tiny = (z == 0).all(axis=2) & replica & ~surely, 1e-12 * self.scale
        never = zeros(still & ~self.been_fresh, ~(self.been_fresh & replica).any(axis=0))
        back = zeros(
            still & (np.abs(self.cached).max(axis=2) <= tiny),
            (np.abs(self.total).max(axis=1) <= tiny) & ~(surely & replica).any(axis=0),
        )
        sent = [(count(surely), count(perhaps)) for count in (gathered, scattered)]
        return self.used, Messages(*sent, (never, back), gathered(replica) + int(mirrors.sum()))


def next_epsilon(epsilon, acc, mean, rule, xi, mu1, mu2, nu1, nu2, lambda1, lambda2) -> float:
    """(6), clamped."""
    up, down = min(lambda1 * epsilon, epsilon + xi), max(lambda2 * epsilon, epsilon - xi)
    if rule == "prose":
        new = down if acc < mean - mu1 else up if acc > mean + mu2 else epsilon
    else:
        risen, fallen = acc > mean + mu2 and epsilon > nu2, acc < mean - mu1 and epsilon < nu1
        new = up if fallen else down if risen else epsilon
    return min(max(new, nu2), nu1)


def train(
    graph, edges, master: np.ndarray, weights: Weights, *, cache: bool = True, quantise: bool = True,
    bits: int = 8, scatter: str = "value", rule: str = "prose", epsilon: float = 0.01, xi: float = 0.01,
    mu1: float = 0.001, mu2: float = 0.02, nu1: float = 0.3, nu2: float = 0.001, lambda1: float = 1.05,
    lambda2: float = 0.9, momentum: float = 0.8, features: str = "refetch", **how,
) -> CdfgnnHistory:  # fmt: skip
    """CDFGNN over a vertex-cut: `edges` has parts, and low, high, owner of every undirected edge; `master`
    [V].
    """
    assert scatter in ("value", "diff", "fp32") and rule in ("prose", "literal")
    assert features in ("refetch", "once")
    case, workers = Training(graph, master, weights, **how), range(edges.parts)
    operator, x, layers, model = case.operator, case.x, case.layers, case.model
    a = parts_of(operator, edges, master)
    is_master = np.array([master == i for i in workers])
    touched = np.zeros_like(is_master)
    touched[edges.owner, edges.low] = touched[edges.owner, edges.high] = True
    dequantised = (lambda m: quantised(m, bits)) if quantise else (lambda m: m)
    replicas, rules = (is_master, touched & ~is_master), (dequantised, cache, scatter)
    sync = {
        (l, way): Synchronised(*replicas, weights[f"layers.{l}.weight"].shape[1], *rules)
        for l in range(layers)
        for way in ("forward", "backward")
        if l > 0 or features == "refetch"
    }
    history, state = CdfgnnHistory(), {"epsilon": epsilon, "mean": None}

    def epoch_step(epoch, weights):
        messages, eps = {}, state["epsilon"]

        def synchronised(l, way, parts):
            rows, messages[l, way] = sync[l, way].synchronise(np.array(parts), eps)
            return rows

        # --- Algorithm 1, lines 3 to 6
        h, z = [x], [None]
        for l in range(layers):
            w, b = weights[f"layers.{l}.weight"], weights[f"layers.{l}.bias"]
            if l == 0 and features == "once":
                z_next = operator @ x @ w + b
            else:
                z_next = synchronised(l, "forward", [a[i] @ h[l] @ w for i in workers]) + b
            if model == "sage":
                z_next = z_next + h[l] @ weights[f"layers.{l}.root"]
            z.append(z_next)
            h.append(np.maximum(z_next, 0.0) if l + 1 < layers else z_next)

        # --- lines 8 to 12
        loss, delta = loss_and_delta(h[layers], graph.labels, graph.train, case.count)
        part = [np.where(is_master[i][:, None], delta, 0.0) for i in workers]
        gradients = {}
        for l in reversed(range(layers)):
            w = weights[f"layers.{l}.weight"]
            gradients[f"layers.{l}.bias"] = sum(part[i].sum(axis=0) for i in workers)
            if model == "sage":
                gradients[f"layers.{l}.root"] = sum(h[l].T @ part[i] for i in workers)
            if l == 0 and features == "once":
                gradients["layers.0.weight"] = sum((operator @ x).T @ part[i] for i in workers)
                break
            delta = synchronised(l, "backward", part)
            gradients[f"layers.{l}.weight"] = sum((a[i] @ h[l]).T @ delta for i in workers)
            gradient_h = [a[i].T @ delta @ w.T for i in workers]
            if model == "sage":
                gradient_h = [gradient_h[i] + part[i] @ weights[f"layers.{l}.root"].T for i in workers]
            if l > 0:
                part = [gradient_h[i] * (z[l] > 0) for i in workers]

        acc = score(h[layers], graph.labels, graph.train)
        mean = acc if state["mean"] is None else state["mean"]
        state["epsilon"] = next_epsilon(eps, acc, mean, rule, xi, mu1, mu2, nu1, nu2, lambda1, lambda2)
        state["mean"] = momentum * mean + (1 - momentum) * acc
        history.epsilon.append(eps)
        history.messages.append(messages)
        history.certain += all(rows.certain for rows in sync.values())
        return loss, gradients

    return case.run(epoch_step, history)
