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


def attention(
    edges: np.ndarray, y: np.ndarray, source: np.ndarray, target: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(alpha [V, V], the scores before LeakyReLU) of one head."""
    raw = (y @ target)[:, None] + (y @ source)[None, :]
    e = np.where(edges, np.where(raw > 0, raw, SLOPE * raw), -np.inf)
    alpha = np.exp(e - e.max(1, keepdims=True))
    return alpha / alpha.sum(1, keepdims=True), raw


def forward(edges: np.ndarray, x: np.ndarray, weights: Weights) -> tuple[list, list]:
    """(H, Z) as in `dense.forward`; `edges` [V, V] bool with the diagonal."""
    layers, h, z = dense.num_layers(weights), [x], [None]
    for l in range(layers):
        w, source, target, bias = of_layer(weights, l)
        y = heads_of(h[l] @ w, len(source))
        each = [attention(edges, y[k], source[k], target[k])[0] @ y[k] for k in range(len(source))]
        z.append((np.concatenate(each, 1) if l + 1 < layers else np.mean(each, 0)) + bias)
        h.append(np.where(z[-1] > 0, z[-1], np.expm1(np.minimum(z[-1], 0))) if l + 1 < layers else z[-1])
    return h, z


def backward(edges: np.ndarray, h: list, z: list, delta: np.ndarray, weights: Weights) -> Weights:
    """Gradients of all parameters, from delta = dloss/dlogits."""
    gradients, layers = {}, dense.num_layers(weights)
    for l in reversed(range(layers)):
        w, source, target, _ = of_layer(weights, l)
        heads = len(source)
        y, g_y, g_source, g_target = heads_of(h[l] @ w, heads), [], [], []
        g = heads_of(delta, heads) if l + 1 < layers else np.repeat(delta[None] / heads, heads, 0)
        for k in range(heads):
            alpha, raw = attention(edges, y[k], source[k], target[k])
            g_alpha = g[k] @ y[k].T
            g_e = alpha * (g_alpha - (alpha * g_alpha).sum(1, keepdims=True))  # of the softmax
            g_raw = g_e * np.where(raw > 0, 1.0, SLOPE)
            of_target, of_source = g_raw.sum(1), g_raw.sum(0)
            g_y.append(alpha.T @ g[k] + np.outer(of_target, target[k]) + np.outer(of_source, source[k]))
            g_source.append(of_source @ y[k])
            g_target.append(of_target @ y[k])
        g_y = np.concatenate(g_y, 1)
        values = {
            "weight": h[l].T @ g_y,
            "att_source": np.array(g_source),
            "att_target": np.array(g_target),
            "bias": delta.sum(0),
        }
        gradients |= {f"layers.{l}.{name}": value for name, value in values.items()}
        if l > 0:
            delta = (g_y @ w.T) * np.where(z[l] > 0, 1.0, np.exp(np.minimum(z[l], 0)))
    return gradients


def train(graph, weights: Weights, *, epochs: int, lr: float, weight_decay: float = 0.0) -> History:
    """Full-batch training of the whole graph; losses and weights of every epoch."""
    edges = (dense.adjacency(graph) + np.eye(graph.num_vertices)) > 0
    x, count = graph.features.astype(np.float64), int(graph.train.sum())
    optimiser, weights, history = Adam(lr, weight_decay), dense.as_float64(weights), History()
    for _ in range(epochs):
        h, z = forward(edges, x, weights)
        loss, delta = dense.loss_and_delta(h[-1], graph.labels, graph.train, count)
        history.gradients.append(backward(edges, h, z, delta, weights))
        weights = optimiser.step(weights, history.gradients[-1])
        history.losses.append(loss)
        history.weights_after.append(weights)
    history.weights = weights
    return history
