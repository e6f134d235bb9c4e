"""JACA (CaPGNN, section 4.2): halo rows out of a local and a global tier, which are refreshed every T epochs.

H_i are the halo vertices of worker i, in halo order: by owner, then by id. R(v) = |{i: v in H_i}| (2).

Algorithm 1, in vertices. C_i = H_i restricted to the k vertices of highest R of each owner (ties by id; k =
-1: all). Device i holds min(floor((M_i 1024 - M_res) 1024^2 / sum_l 4 f_l), |C_i|), over the layers l whose
inputs are cached, and the host as many of C = union of C_i with its own memory and reserve. In the sweeps of
section 5 capacities are given as numbers of vertices.

Which vertices a tier holds. policy "jaca": for the whole run, the first of C_i (local) and of C (global) in
descending order of R, ties by id; a vertex may be in both. "low_overlap": in ascending order of R. With
tiers "exclusive" R counts, for the global tier, only the workers whose local tier does not hold v (where
there is none, v is not in it); and in a refresh, too, a worker gets from it only what its local tier does not
hold. "fifo" and "lru" are lists, next to go first. The paper says no more; decided is:

    Every worker looks its whole halo up once per epoch, in halo order, first in its local list. What is not
    there is taken in at the end, and the first goes where the list is full; it goes at once, so that a later
    lookup in the same epoch does not find it. lru moves what is found to the end.
    The lookups that failed go to the global list, and all of them find what it held at the start of the
    epoch. lru first moves what they find to the end, worker by worker; then what they do not find is taken
    in, worker by worker. The lists are the same for all layers.

A row of layer l in epoch t. A refresh, t mod T = 0 (of layer 0, which is static, only t = 0): every row is
H_t[l]. Otherwise: found locally, the row that is there; else found globally, the row that is there; else
H_t[l], "fresh". Afterwards a local tier keeps the row that was used for whatever it holds and did not find in
this epoch (all, in a refresh), so that a row which comes from the global tier keeps its age. The global tier
gets H_t[l] of what it takes in in epoch t, and in a refresh of all that it held at the start.

Hits: lookups |H_i|; in a refresh, `refreshed` are those in either tier; otherwise local_hits and global_hits
as above. The rest are misses. Directly from owners come the misses; in a refresh, all that the worker does
not get from the global tier.

Gradients: C[l] = sum_i R_iᵀ E over the columns that worker i had fresh (in a refresh: all), or over all
("exact"), added by the owners to the gradient of H_t[l] in the same epoch. R_i: rows of part i, columns of
other parts.

pipeline: what is used in epoch t, and whether it counts as fresh, is what was looked up in epoch t - 1 (in
epoch 0, then). features = "once": layer 0 is fetched whole and exact, and goes through no tier.
"""

from dataclasses import dataclass, field

import numpy as np

from tests.oracles.dense import History, Weights, adjacency
from tests.oracles.split import Training, remote_rows


@dataclass
class CapgnnHistory(History):
    """counts[t][l][name]: [P] by worker, of local_hits, global_hits, refreshed, misses, lookups; `direct`,
    rows that owners send; `renewed` and `taken`, own rows that the global tier gets in a refresh and by
    taking in; `got`, rows taken from it; `returned`, rows whose gradients go to their owners; `staleness`, of
    the oldest row used in the epoch; and `renewing`, 1 in a refresh. failed[t] [P]: lookups that did not find
    anything in the local tier."""

    counts: list[dict[int, dict[str, np.ndarray]]] = field(default_factory=list)
    failed: list[np.ndarray] = field(default_factory=list)


def halos_of(graph, assignment: np.ndarray) -> list[np.ndarray]:
    return [np.concatenate(by_owner) for by_owner in remote_rows(adjacency(graph), assignment)]


def candidates(
    halos: list[np.ndarray], assignment: np.ndarray, k: int, sign: int = -1
) -> tuple[list[list[int]], list[int]]:
    """C_i by worker and C, in descending order of R (`sign` 1: ascending), ties by id."""
    ratio = sum(np.isin(np.arange(len(assignment)), halo).astype(int) for halo in halos)
    best = lambda chosen: sorted(chosen, key=lambda v: (sign * ratio[v], v))
    local = []
    for halo in halos:
        by_owner = [best(halo[assignment[halo] == j]) for j in range(len(halos))]
        local.append(best([int(v) for owned in by_owner for v in (owned if k < 0 else owned[:k])]))
    return local, best(set().union(*local))


def capacities(
    graph,
    assignment,
    widths: list[int],
    memory: list[float],
    host: float,
    reserved: float,
    reserved_host: float,
    k: int,
):
    """Algorithm 1: (of every device, of the host); memory in GiB, reserves in MiB."""
    local, shared = candidates(halos_of(graph, assignment), assignment, k)
    fit = lambda gib, mib: int(np.floor((gib * 1024 - mib) * 1024**2 / sum(4 * f for f in widths)))
    return [min(fit(m, reserved), len(c)) for m, c in zip(memory, local)], min(
        fit(host, reserved_host), len(shared)
    )


def left_over(halos: list[np.ndarray], best: list[int], held: list[list[int]]) -> list[int]:
    """Of C, what some worker looks up and does not hold: most such workers first, ties by id."""
    asking = {v: sum(v in halo and v not in own for halo, own in zip(halos, held)) for v in best}
    return sorted((v for v in best if asking[v]), key=lambda v: (-asking[v], v))


FIXED = ("jaca", "low_overlap")


class Tier:
    def __init__(self, policy: str, capacity: int, best: list[int]):
        self.policy, self.capacity, self.held = policy, capacity, best[:capacity] if policy in FIXED else []

    def use(self, v: int, take_in: bool) -> bool:
        """Whether v is found."""
        found = v in self.held
        if found and self.policy == "lru":
            self.held.remove(v)
            self.held.append(v)
        if not found and take_in and self.policy not in FIXED and self.capacity:
            self.held = [*self.held[-self.capacity + 1 :], v] if self.capacity > 1 else [v]
        return found


def train(
    graph, assignment: np.ndarray, weights: Weights, *, policy: str = "jaca", tiers: str = "inclusive",
    local_capacity: int, global_capacity: int, refresh: int = 10, gradients: str = "exact",
    features: str = "once", top_k: int = -1, pipeline: bool = True, **how,
) -> CapgnnHistory:  # fmt: skip
    assert policy in (*FIXED, "fifo", "lru") and gradients in ("fresh", "exact")
    assert features in ("refetch", "once")
    case = Training(graph, assignment, weights, **how)
    halos, workers, remote, layers = halos_of(graph, assignment), case.parts, case.remote, case.layers
    remotes = [np.where((assignment == i)[:, None], remote, 0.0) for i in workers]
    n = len(assignment)
    best_local, best = candidates(halos, assignment, top_k, 1 if policy == "low_overlap" else -1)
    local = [Tier(policy, local_capacity, best_local[i]) for i in workers]
    if tiers == "exclusive":
        best = left_over(halos, best, [tier.held for tier in local])
    shared = Tier(policy, global_capacity, best)
    # [V, F + 1]: rows, and the epochs in which they were computed
    local_rows = [[None] * layers for _ in workers]
    shared_rows: list = [None] * layers
    asked: dict[int, tuple[list, list]] = {}
    history = CapgnnHistory()

    def look_up():
        there = set(shared.held)
        found = [{v for v in halos[i] if local[i].use(v, True)} for i in workers]
        failed = [[v for v in halos[i] if v not in found[i]] for i in workers]
        for v in sum(failed, []):
            shared.use(v, False)
        missed = [v for v in sum(failed, []) if v not in there]
        for v in missed:
            shared.use(v, True)
        return found, there, [v for v in missed if v in shared.held]

    def answer(epoch, l, h, found, there, taken):
        """By worker: rows and ages [V, F + 1] and whether they are fresh [V]; then the tiers hold them."""
        renewing = epoch % refresh == 0 if l else epoch == 0
        now = np.column_stack([h, np.full(n, epoch)])
        rows, fresh, counts = [], [], {}
        for i in workers:
            used, new = now.copy(), np.ones(n, bool)
            for v in halos[i]:
                if not renewing and (v in found[i] or v in there):
                    used[v], new[v] = (local_rows[i] if v in found[i] else shared_rows)[l][v], False
            rows.append(used)
            fresh.append(new)
            local_rows[i][l] = used.copy() if local_rows[i][l] is None else local_rows[i][l]
            for v in local[i].held:
                if renewing or v not in found[i]:
                    local_rows[i][l][v] = used[v]
            either, second = found[i] | (there & set(halos[i])), there & (set(halos[i]) - found[i])
            served = second if tiers == "exclusive" else there & set(halos[i])  # in a refresh
            hits = (0, 0, len(either)) if renewing else (len(found[i]), len(second), 0)
            direct = [v for v in halos[i] if v not in (served if renewing else either)]
            owned = lambda vertices: sum(assignment[v] == i for v in vertices)  # noqa: B023
            got = served if renewing else second
            found_here = dict(
                local_hits=hits[0], global_hits=hits[1], refreshed=hits[2], lookups=len(halos[i]),
                misses=len(halos[i]) - sum(hits), direct=len(direct), got=len(got),
                renewed=owned(there) * renewing, taken=owned(set(taken)), renewing=renewing,
            )  # fmt: skip
            for name, value in found_here.items():
                counts.setdefault(name, np.zeros(len(halos), int))[i] = value
        shared_rows[l] = now.copy() if shared_rows[l] is None else shared_rows[l]
        for v in [*taken, *(there if renewing else [])]:
            shared_rows[l][v] = now[v]
        return rows, fresh, counts

    def epoch_step(epoch, weights):
        looked_up, fresh = look_up(), [None] * layers
        history.counts.append({})
        history.failed.append(np.array([len(halos[i]) - len(looked_up[0][i]) for i in workers]))

        def aggregated(l, h):
            if l == 0 and features == "once":
                return remote @ h
            rows, new, counts = answer(epoch, l, h, *looked_up)
            before = asked.get(l, (rows, new)) if pipeline else (rows, new)
            asked[l] = (rows, new)
            rows, fresh[l] = before
            counts["staleness"] = np.array(
                [epoch - min((rows[i][v, -1] for v in halos[i]), default=epoch) for i in workers]
            )
            back = [new if gradients == "fresh" else np.ones(n, bool) for new in fresh[l]]
            counts["returned"] = np.array([back[i][halos[i]].sum() for i in workers]) * (l > 0)
            history.counts[epoch][l] = counts
            return sum(remotes[i] @ rows[i][:, :-1] for i in workers)

        def arriving(l, e):
            if gradients == "exact":
                return remote.T @ e
            return sum(np.where(fresh[l][i], remotes[i], 0.0).T @ e for i in workers)

        return case.step(weights, aggregated, arriving)

    return case.run(epoch_step, history)
