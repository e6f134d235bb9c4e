"""SANCUS (section 4.3): Algorithm 3 with the staleness checks of Algorithms 4, 5 and 6, all P processes in
one.

Notation. H[l][i]: the rows of H^(l) that process i owns, l = 0..L (H^(0) the features). cache[l][j]: the copy
H̃_j^(l) that every process other than j holds (one copy: a broadcast reaches all). A[i][j]: the block Â_ij.

Forward, layer l -> l + 1 (Algorithm 3; equation (7)): process i uses its OWN block fresh and the cached copy
of every other, which an ACTIVE block has just renewed:

    T_i = Â_ii H_i^(l) + Σ_{j≠i} Â_ij H̃_j^(l),   Z_i^(l+1) = T_i W^(l) + b^(l)

Backward: δ_j of every block is broadcast in every epoch, clipped by its owner first. With G_i = Σ_j (Â_ji)ᵀ
δ_j^(l+1)

    δ_i^(l) = G_i W^(l)ᵀ ⊙ ReLU'(Z_i^(l))                                                (4)
    ∂W^(l) = Σ_i H_i^(l)ᵀ G_i, H_i the FRESH own block;  ∂b^(l) = Σ_i column sums of δ_i   (5)

which is not the derivative of the forward pass above unless nothing is stale: that would hold T_i against
δ_i.

When is block j of layer l ACTIVE in epoch e (epochs count from 0)? In epoch 0 always, since nobody holds
anything, and in the other epochs of the warm-up, e < warmup, likewise: it adds broadcasts and changes no
stamp. Otherwise

epoch_fixed (Algorithm 4)     when e - Ver(j) > ε_E; a broadcast sets Ver(j) = e: epochs 0, ε_E + 1, 2(ε_E +
                              1), ...
epoch_adaptive (Algorithm 5)  when e - Ver(j) > ε_A, where Ver(j) = (j mod (ε_A + 1)) - (ε_A + 1) at the
                              start, so that block j is first due at epoch d_j = j mod (ε_A + 1) and then
                              every ε_A + 1 epochs. In epoch 0 all broadcast, but that stamps only the blocks
                              due then (d_j = 0): the others are due at d_j all the same. phase = "paper":
                              all Ver(j) are alike at the start, every P(i) goes through the blocks of the
                              others in order and stops at the first that is due; what any of them found is
                              ACTIVE.
variation_gap (Algorithm 6)   when ‖H_j - H̃_j‖ > ε_H, strictly. norm = "relative": ‖H_j - H̃_j‖_F > ε_H
                              ‖H̃_j‖_F (so after a cache of zeros any change is sent); "fro": ‖.‖_F; "max":
                              the largest
                              |entry|; "mean": the mean of all |entries|.

flags = "layer": each (layer, block) by itself. "worker": one flag a worker. The epoch rules are then the
same. Under variation_gap H^(l) is known only once layer l is reached, so a worker is ACTIVE at layer l when
ANY of its layers 0..l exceeded the bound in this epoch: a flag that was raised stays up until the epoch ends.
(With features = "once" or "kept" layer 0 has no say.)

features = "refetch": the rule is applied to layer 0 as to any other. "once": layer 0 is broadcast in epoch 0
and then static; the gradient of W^(0) is the local product Σ_i (ÂX)_iᵀ δ_i^(1), equal in value, for which
δ^(1) need not travel. "kept": layer 0 is broadcast in epoch 0 only, and all else is as in any other layer:
δ^(1) travels in every epoch.

Clipping: δ_i^(l), l = L..1, is scaled down to L2 norm t where it is above t = th √P (clip_scale "sqrt", as
printed) or t = th / √P ("inverse").

GraphSAGE, model = "sage": M instead of Â, and a vertex's own row H_i^(l) R^(l) is added to Z_i^(l+1), fresh.

`coded(epoch, layer, direction, sender, block)` is what the other processes hold of a block that is broadcast,
of H^(layer) "forward", of δ^(layer+1) "backward". For SANCUS it is the block itself.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from tests.oracles.dense import History, Weights, linear, loss_and_delta
from tests.oracles.split import Training


@dataclass
class SancusHistory(History):
    """active[e][l][j]    block j of H^(l) was broadcast in epoch e
    versions[e][l][j]  the epoch in which the copy that the other processes used in epoch e was computed (a
                       layer 0 of version 0 is old but exact: features are static)
    """

    active: list[np.ndarray] = field(default_factory=list)
    versions: list[np.ndarray] = field(default_factory=list)

    @property
    def staleness(self) -> np.ndarray:
        """[epochs, L, P] age in epochs of what the other processes used."""
        return np.arange(len(self.versions))[:, None, None] - np.array(self.versions)


def first_stamps(staleness, bound, parts: int, phase: str) -> list[float]:
    """Ver(j) before epoch 0."""
    if staleness == "epoch_adaptive" and phase == "stagger":
        return [j % (bound + 1) - (bound + 1) for j in range(parts)]
    return [-math.inf] * parts


def ended_checks(versions: list[float], epoch: int, bound: float) -> set[int]:
    """Algorithm 5 as printed: the blocks that some P(i) finds, each of which stops at the first one."""
    active = set()
    for i in range(len(versions)):
        for j in range(len(versions)):
            if j != i and epoch - versions[j] > bound:
                active.add(j)
                break
    return active


def exceeds(h: np.ndarray, cached: np.ndarray, bound: float, norm: str) -> bool:
    """‖H - H̃‖ > ε_H (Algorithm 6)."""
    if norm == "relative":
        return bool(np.linalg.norm(h - cached) > bound * np.linalg.norm(cached))
    if norm == "fro":
        return bool(np.linalg.norm(h - cached) > bound)
    assert norm in ("max", "mean"), norm
    entries = np.abs(h - cached)
    return bool((entries.max() if norm == "max" else entries.sum() / entries.size) > bound)


def clipped(delta: np.ndarray, threshold: float) -> np.ndarray:
    norm = np.linalg.norm(delta)
    return delta * (threshold / norm) if norm > threshold else delta


def as_it_is(epoch: int, layer: int, direction: str, sender: int, block: np.ndarray) -> np.ndarray:
    return block


def train(
    graph, assignment: np.ndarray, weights: Weights, *, staleness, bound: float = 0, phase: str = "stagger",
    norm: str = "relative", flags: str = "layer", features: str = "refetch", clip: float = math.inf,
    clip_scale: str = "sqrt", warmup: int = 1, coded=as_it_is, **how,
) -> SancusHistory:  # fmt: skip
    """SANCUS over the blocks of `assignment` [V]; the rules are in the module's docstring."""
    assert staleness in ("epoch_fixed", "epoch_adaptive", "variation_gap"), staleness
    assert warmup >= 1 and flags in ("layer", "worker") and features in ("refetch", "kept", "once")
    assert clip_scale in ("sqrt", "inverse")
    case = Training(graph, assignment, weights, **how)
    blocks, layers, count, model = case.blocks, case.layers, case.count, case.model
    processes = case.parts
    a = [[case.operator[np.ix_(rows, columns)] for columns in blocks] for rows in blocks]
    x = [case.x[rows] for rows in blocks]
    threshold = clip * math.sqrt(len(blocks)) if clip_scale == "sqrt" else clip / math.sqrt(len(blocks))

    cache = [[None for _ in processes] for _ in range(layers)]
    computed = np.zeros((layers, len(blocks)), dtype=int)  # the epoch of each cached copy
    # Ver(j) of Algorithms 4 and 5
    stamp = [first_stamps(staleness, bound, len(blocks), phase) for _ in range(layers)]
    history = SancusHistory()

    def epoch_step(epoch, weights):
        active = np.zeros((layers, len(blocks)), dtype=bool)
        exceeded = [False for _ in processes]  # by worker, in this epoch

        # --- forward pass
        h, z, t = [x], [None], []
        for l in range(layers):
            found = ended_checks(stamp[l], epoch, bound) if phase == "paper" else set(processes)
            for j in processes:
                # the staleness check: F(j)
                if features != "refetch" and l == 0:
                    active[l, j] = epoch == 0
                elif staleness == "variation_gap":
                    exceeds_here = epoch < warmup or exceeds(h[l][j], cache[l][j], bound, norm)
                    exceeded[j] = exceeded[j] or exceeds_here
                    active[l, j] = exceeded[j] if flags == "worker" else exceeds_here
                else:
                    due = epoch - stamp[l][j] > bound and (
                        staleness == "epoch_fixed" or epoch < warmup or j in found
                    )
                    active[l, j] = epoch < warmup or due
                    if due:
                        stamp[l][j] = epoch
                if active[l, j]:  # BROADCAST and CACHE
                    cache[l][j] = coded(epoch, l, "forward", j, h[l][j])
                    computed[l, j] = epoch
            t.append(
                [sum(a[i][j] @ (h[l][j] if i == j else cache[l][j]) for j in processes) for i in processes]
            )
            z.append([linear(t[l][i], h[l][i], weights, l, model) for i in processes])
            h.append([np.maximum(z_i, 0.0) if l + 1 < layers else z_i for z_i in z[l + 1]])

        # --- loss: every process over its own training vertices
        losses, delta = [], []
        for i in processes:
            loss_i, delta_i = loss_and_delta(
                h[layers][i], graph.labels[blocks[i]], graph.train[blocks[i]], count
            )
            losses.append(loss_i)
            delta.append(delta_i)

        # --- backward pass
        gradients = {}
        for l in reversed(range(layers)):
            w = weights[f"layers.{l}.weight"]
            delta = [clipped(delta_i, threshold) for delta_i in delta]
            gradients[f"layers.{l}.bias"] = sum(delta_i.sum(axis=0) for delta_i in delta)
            if model == "sage":
                gradients[f"layers.{l}.root"] = sum(h[l][i].T @ delta[i] for i in processes)
            if features == "once" and l == 0:
                gradients["layers.0.weight"] = sum(t[0][i].T @ delta[i] for i in processes)
                break
            # every δ_j is broadcast
            sent = [coded(epoch, l, "backward", j, delta[j]) for j in processes]
            g = [sum(a[j][i].T @ (delta[j] if i == j else sent[j]) for j in processes) for i in processes]
            gradients[f"layers.{l}.weight"] = sum(h[l][i].T @ g[i] for i in processes)
            if l > 0:
                back = [g_i @ w.T for g_i in g]
                if model == "sage":
                    back = [back[i] + delta[i] @ weights[f"layers.{l}.root"].T for i in processes]
                delta = [back[i] * (z[l][i] > 0) for i in processes]

        history.active.append(active)
        history.versions.append(computed.copy())
        return sum(losses), gradients

    return case.run(epoch_step, history)
