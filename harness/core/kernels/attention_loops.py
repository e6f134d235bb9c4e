"""Compiled loops of `harness.core.attention`, over rows or columns `first` to `last`, or in parts by threads;
the arrays are those of `AttentionEdges` and of its `attend`.
"""

import numba
import numpy as np

from harness.core.kernels.parallel import by_threads

SLOPE = 0.2  # of the LeakyReLU


@numba.njit(cache=True, nogil=True)
def forward(first, last, indptr, indices, y, source, target, alpha, z):
    """alpha [E, heads] <- the softmax of the scores; z [n, heads, f] <- the sums that it weights."""
    heads, width = y.shape[1], y.shape[2]
    for v in range(first, last):
        for h in range(heads):
            top = -np.inf
            for e in range(indptr[v], indptr[v + 1]):
                score = target[v, h] + source[indices[e], h]
                score = score if score > 0 else SLOPE * score
                alpha[e, h] = score
                top = max(top, score)
            total = 0.0
            for e in range(indptr[v], indptr[v + 1]):
                alpha[e, h] = np.exp(alpha[e, h] - top)
                total += alpha[e, h]
            for k in range(width):
                z[v, h, k] = 0
            for e in range(indptr[v], indptr[v + 1]):
                alpha[e, h] /= total
                a, row = alpha[e, h], y[indices[e], h]
                for k in range(width):
                    z[v, h, k] += a * row[k]


@numba.njit(cache=True, nogil=True)
def backward_rows(first, last, indptr, indices, y, source, target, alpha, grad, d_score, d_target):
    """Gradients of every edge's score and of the target half."""
    heads, width = y.shape[1], y.shape[2]
    for v in range(first, last):
        for h in range(heads):
            mean = 0.0
            for e in range(indptr[v], indptr[v + 1]):
                row, dot = y[indices[e], h], 0.0
                for k in range(width):
                    dot += grad[v, h, k] * row[k]
                d_score[e, h] = dot
                mean += alpha[e, h] * dot
            total = 0.0
            for e in range(indptr[v], indptr[v + 1]):
                d = alpha[e, h] * (d_score[e, h] - mean)
                d = d if target[v, h] + source[indices[e], h] > 0 else SLOPE * d
                d_score[e, h] = d
                total += d
            d_target[v, h] = total


@numba.njit(cache=True, nogil=True)
def backward_columns(first, last, starts, edge, target, alpha, grad, d_score, d_y, d_source):
    """Gradients of every column's row and of the source half, summed over the edges that leave it."""
    heads, width = d_y.shape[1], d_y.shape[2]
    for u in range(first, last):
        for h in range(heads):
            total = 0.0
            for k in range(width):
                d_y[u, h, k] = 0
            for i in range(starts[u], starts[u + 1]):
                e = edge[i]
                a, row = alpha[e, h], grad[target[e], h]
                total += d_score[e, h]
                for k in range(width):
                    d_y[u, h, k] += a * row[k]
            d_source[u, h] = total


@by_threads
def forward_by_rows(bounds, indptr, indices, y, source, target, alpha, z):
    for part in numba.prange(len(bounds) - 1):
        forward(bounds[part], bounds[part + 1], indptr, indices, y, source, target, alpha, z)


@by_threads
def backward_by_rows(bounds, indptr, indices, y, source, target, alpha, grad, d_score, d_target):
    for part in numba.prange(len(bounds) - 1):
        backward_rows(
            bounds[part], bounds[part + 1], indptr, indices, y, source, target, alpha, grad, d_score, d_target
        )


@by_threads
def backward_by_columns(bounds, starts, edge, target, alpha, grad, d_score, d_y, d_source):
    for part in numba.prange(len(bounds) - 1):
        backward_columns(
            bounds[part], bounds[part + 1], starts, edge, target, alpha, grad, d_score, d_y, d_source
        )
