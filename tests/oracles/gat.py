"""Full-graph GAT training written out (Velickovic et al., 2018, eqs. 1-6): dense, float64, every derivative
by hand.

    Y = H W, head k its columns Y_k;   e_k[v, u] = LeakyReLU(a_t,k . Y_k[v] + a_s,k . Y_k[u])  for u in N(v)
                                       and u = v
    alpha_k[v, :] = softmax(e_k[v, :]);   Z_k = alpha_k Y_k;   Z = heads side by side, in the last layer their
                                          mean, + b
    H' = ELU(Z)

Parameters are named as in the harness: layers.{l}.weight [in, heads f], .att_source and .att_target [heads,
f], .bias.
"""

import numpy as np

from tests.oracles import dense
from tests.oracles.dense import Adam, History, Weights

SLOPE = 0.2


def of_layer(weights: Weights, l: int) -> list[np.ndarray]:
    return [weights[f"layers.{l}.{name}"] for name in ("weight", "att_source", "att_target", "bias")]


def heads_of(y: np.ndarray, heads: int) -> np.ndarray:
    return y.reshape(len(y), heads, -1).transpose(1, 0, 2)


def elu(z: np.ndarray) -> np.ndarray:
    return np.where(z > 0, z, np.expm1(np.minimum(z, 0)))


def elu_slope(z: np.ndarray) -> np.ndarray:
    return np.where(z > 0, 1.0, np.exp(np.minimum(z, 0)))


def attention(
    edges: np.ndarray, y: np.ndarray, source: np.ndarray, target: np.ndarray, rows=slice(None)
) -> tuple[np.ndarray, np.ndarray]:
    """(alpha, the scores before LeakyReLU), [rows, V], of one head; `edges` [rows, V] bool has each row's
    own vertex."""
    raw = (y[rows] @ target)[:, None] + (y @ source)[None, :]
    e = np.where(edges, np.where(raw > 0, raw, SLOPE * raw), -np.inf)
    alpha = np.exp(e - e.max(1, keepdims=True))
    return alpha / alpha.sum(1, keepdims=True), raw


def forward(edges, h: np.ndarray, layer: list[np.ndarray], last: bool, rows=slice(None)) -> np.ndarray:
    """Z of these rows, from H [V, f] and a layer's parameters."""
    w, source, target, bias = layer
    y = heads_of(h @ w, len(source))
    each = [attention(edges, y[k], source[k], target[k], rows)[0] @ y[k] for k in range(len(source))]
    return (np.mean(each, 0) if last else np.concatenate(each, 1)) + bias


def backward(
    edges, h: np.ndarray, layer: list[np.ndarray], delta: np.ndarray, last: bool, rows=slice(None)
) -> tuple[Weights, np.ndarray]:
    """Gradients of the layer's parameters, and of all of H; `delta` = dloss/dZ of these rows."""
    w, source, target, _ = layer
    heads = len(source)
    y = heads_of(h @ w, heads)
    g = np.repeat(delta[None] / heads, heads, 0) if last else heads_of(delta, heads)
    g_y, g_source, g_target = np.zeros_like(y), np.zeros_like(source), np.zeros_like(target)
    for k in range(heads):
        alpha, raw = attention(edges, y[k], source[k], target[k], rows)
        g_alpha = g[k] @ y[k].T
        g_e = alpha * (g_alpha - (alpha * g_alpha).sum(1, keepdims=True))  # of the softmax
        g_raw = g_e * np.where(raw > 0, 1.0, SLOPE)
        g_y[k] = alpha.T @ g[k] + np.outer(g_raw.sum(0), source[k])
        g_y[k][rows] += np.outer(g_raw.sum(1), target[k])
        g_source[k], g_target[k] = g_raw.sum(0) @ y[k], g_raw.sum(1) @ y[k][rows]
    flat = np.concatenate(list(g_y), 1)
    found = {"weight": h.T @ flat, "att_source": g_source, "att_target": g_target, "bias": delta.sum(0)}
    return found, flat @ w.T


def train(graph, weights: Weights, *, epochs: int, lr: float, weight_decay: float = 0.0) -> History:
    """Full-batch training of the whole graph; losses and weights of every epoch."""
    edges = (dense.adjacency(graph) + np.eye(graph.num_vertices)) > 0
    x, count, layers = graph.features.astype(np.float64), int(graph.train.sum()), dense.num_layers(weights)

    def epoch_step(_, weights):
        h, z, gradients = [x], [], {}
        for l in range(layers):
            z.append(forward(edges, h[l], of_layer(weights, l), l + 1 == layers))
            h.append(elu(z[l]))
        loss, delta = dense.loss_and_delta(z[-1], graph.labels, graph.train, count)
        for l in reversed(range(layers)):
            found, back = backward(edges, h[l], of_layer(weights, l), delta, l + 1 == layers)
            gradients |= {f"layers.{l}.{name}": value for name, value in found.items()}
            delta = back * elu_slope(z[l - 1]) if l > 0 else None
        return loss, gradients

    return dense.loop(weights, epoch_step, Adam(lr, weight_decay), epochs, History())
