"""SuperGNN (Zhuang, Zhang, Wu, Chen, Huang, Liu, Yokota, Dryden, Endo, Matsuoka, Wahib, ICS 2025, arXiv
2411.16025): the fewest rows and partial sums across every pair of workers, each rounded to a few bits.

G_ij, S_ij and `cover`: tests/oracles/lean.py. Here they are of all cut edges, in every layer (rows = "all"),
or of those alone that the loss needs ("needed"). H travels, then the product with W is taken:

    Z[l + 1] = (O H[l] + Σ S_ij Q(G_ij H[l])) W[l] + b[l]
    ∂H[l] = Oᵀ E + Σ G_ijᵀ Q(S_ijᵀ E),   E = δ[l + 1] W[l]ᵀ

The weight gradient is taken at what was read. Q of each row x of a message, with z and s rounded to bfloat16
before they are used:

    bits <= 8   z = min x,  s = (max x - min x) / (2^bits - 1), 1 where that is 0
                Q(x) = z + s q,   q = (x - z) / s rounded to the nearest whole number, halves to the even one,
                within 0..2^bits - 1
    bits = 16   each value rounded to bfloat16;     bits = 32   Q(x) = x

features = "once": layer 0 is read exact, its remote rows sent in epoch 0 alone; "refetch": as any other
layer, forward.

Bytes of k rows of width f: k (ceil(f bits / 8) + 4) at up to 8 bits, 2 k f at 16 and 4 k f at 32.

Attention needs rows: no sums. What is sent, and to whom: tests/oracles/lean_gat.py, with this Q.
"""

import numpy as np

from tests.oracles import lean, lean_gat
from tests.oracles.dense import History, Weights, adjacency, num_layers
from tests.oracles.split import Training


def bfloat16(x: np.ndarray) -> np.ndarray:
    """x to 8 bits of mantissa, halves to the even one."""
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.rint(mantissa * 2**8), exponent - 8)


def rounded(x: np.ndarray, bits: int) -> np.ndarray:
    """Q of the rows of x [k, f]."""
    if bits >= 16:
        return x if bits == 32 else bfloat16(x)
    top, low, spread = 2**bits - 1, x.min(axis=1, keepdims=True), np.ptp(x, axis=1, keepdims=True)
    z, s = bfloat16(low), bfloat16(np.where(spread > 0, spread / top, 1.0))
    return z + s * np.clip(np.rint((x - z) / s), 0, top)


def message_bytes(rows: int, width: int, bits: int) -> int:
    return rows * (-(-width * bits // 8) + (4 if bits <= 8 else 0))


def needed_sets(graph, layers: int, rows: str) -> list[np.ndarray]:
    """R_0 .. R_L  [V] bool: whose rows each layer takes, and the last gives."""
    every = np.ones(graph.num_vertices, bool)
    return [every] * (layers + 1) if rows == "all" else lean.needed_sets(graph, layers)


def plans(graph, assignment, layers: int, cover, rows: str, operator) -> list[lean.Layer]:
    """G and S of every layer."""
    edges, sets = adjacency(graph) != 0, needed_sets(graph, layers, rows)
    return [lean.Layer(operator, edges, assignment, sets, l, cover) for l in range(layers)]


def epoch_bytes(graph, assignment: np.ndarray, widths: list[int], cover, *, bits: int) -> np.ndarray:
    """[L] bytes of an epoch's messages of each layer in one direction, all pairs together.

    Layer 0 has no backward messages; under "once" it has none at all, but for its rows in epoch 0.
    """
    layers = len(widths) - 1
    found = plans(graph, assignment, layers, cover, "all", adjacency(graph))
    counts = [sum(len(g) for g, _ in plan.pairs.values()) for plan in found]
    return np.array([message_bytes(counts[l], widths[l], bits) for l in range(layers)])


def train(
    graph, assignment: np.ndarray, weights: Weights, cover, *, bits: int = 32, rows: str = "all",
    features: str = "once", **how,
) -> History:  # fmt: skip
    """SuperGNN over the parts of `assignment` [V]; bits = 32 is exact."""
    assert bits in (2, 4, 8, 16, 32) and rows in ("all", "needed") and features in ("once", "refetch")
    case = Training(graph, assignment, weights, **how)
    plan = plans(graph, assignment, case.layers, cover, rows, case.operator)

    def received(l, h):
        """Σ S Q(G h), [V, f]."""
        if l == 0 and features == "once":
            return case.remote @ h
        return sum((s @ rounded(g @ h, bits) for g, s in plan[l].pairs.values() if len(g)), np.zeros_like(h))

    def arriving(l, e):
        """Σ Gᵀ Q(Sᵀ e)."""
        pairs = plan[l].pairs.values()
        return sum((g.T @ rounded(s.T @ e, bits) for g, s in pairs if len(g)), np.zeros_like(e))

    # Rows that the loss does not need have no δ: what they hold does not matter.
    return case.run(lambda _, weights: case.step(weights, received, arriving))


def train_attention(
    graph, assignment: np.ndarray, weights: Weights, *, bits: int, rows: str = "all", **how
) -> History:
    """The same of a model with attention."""
    sets, none = needed_sets(graph, num_layers(weights), rows), lambda *message: np.zeros(message[-1])
    coded = lambda message, bits, _: rounded(message, bits)
    return lean_gat.train(graph, assignment, weights, none, bits=bits, sets=sets, coded=coded, **how)
