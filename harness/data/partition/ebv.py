"""EBV with CDFGNN's host term (eq. 24): edges one by one, each to the worker where it costs least.

The cost of an edge on worker i, which has E_i of M edges and V_i replicas of V vertices so far, is

    (1 - gamma) [ends new to worker i] + gamma [ends new to its host] + alpha E_i P / M + beta V_i P / V

CDFGNN prints neither alpha and beta nor an order of edges. Here alpha = beta = 1, as in its authors' public
EBV_1Pass.cpp (`cuda_gcn/src/tools` of ICT-ACL/DRONE, where other programs have 0.01), and edges come as there
in ascending order of the sum of their ends' degrees, then of their id; the lowest worker wins ties. Each
undirected edge comes once, and self-loops do not come."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from harness.base.bounds import number
from harness.data.partition.config import VertexCutPartitioner


@dataclass
class Ebv(VertexCutPartitioner):
    """CDFGNN's EBV: each edge goes to the worker where it adds least replication and load
    (harness.data.partition.ebv).

    gamma    weight of replicas on new hosts against replicas on new workers (eq. 24); 0 is plain EBV. On one
             host it only lowers the weight of replicas against that of load, to 1 - gamma
    """

    gamma: float = number(0.1, 0, 1)

    drawn: ClassVar[bool] = False

    def edge_owners(self, low, high, num_vertices, parts, seed):
        degrees = np.bincount(low, minlength=num_vertices) + np.bincount(high, minlength=num_vertices)
        order = np.argsort(degrees[low] + degrees[high], kind="stable")  # ties by id
        return _stream(low, high, order, num_vertices, parts, float(self.gamma), parts // self.hosts)


@njit(cache=True, nogil=True)
def _stream(low, high, order, num_vertices, parts, gamma, per_host):
    edges, vertices = len(low), num_vertices
    on_worker = np.zeros((vertices, parts), np.bool_)  # d_rep
    on_host = np.zeros((vertices, parts // per_host), np.bool_)  # h_rep
    e_count, v_count = np.zeros(parts, np.int64), np.zeros(parts, np.int64)
    owner = np.empty(edges, np.int32)
    for e in order:
        u, v = low[e], high[e]
        best, least = 0, np.inf
        for i in range(parts):
            new_workers = 2 - on_worker[u, i] - on_worker[v, i]
            new_hosts = 2 - on_host[u, i // per_host] - on_host[v, i // per_host]
            cost = (1 - gamma) * new_workers + gamma * new_hosts
            cost += e_count[i] * parts / edges + v_count[i] * parts / vertices
            if cost < least:
                best, least = i, cost
        owner[e] = best
        e_count[best] += 1
        v_count[best] += 2 - on_worker[u, best] - on_worker[v, best]
        on_worker[u, best] = on_worker[v, best] = True
        on_host[u, best // per_host] = on_host[v, best // per_host] = True
    return owner
