"""A vertex-cut that follows METIS's parts, so that systems of both kinds of cut can be compared on the same
parts. A vertex's master is still chosen by hash among its replicas."""

from dataclasses import dataclass

import numpy as np
import pymetis

from harness.data.csr import incidence
from harness.data.partition.assign import by_hosts, fill_empty
from harness.data.partition.config import VertexCutPartitioner


@dataclass
class MetisEdges(VertexCutPartitioner):
    """An edge inside one of METIS's parts belongs to its worker. One between two parts belongs to that of the
    end with fewer edges (of two alike, with the smaller id): the end with more is then replicated for many
    such edges at once. hosts: as of partition=metis, the graph is cut for them first."""

    @property
    def name(self) -> str:
        return "metis/edges"

    def edge_owners(self, low, high, num_vertices, parts, seed):
        starts, neighbours, _ = incidence(low, high, num_vertices)
        index = pymetis.zero_copy_dtype()
        part = by_hosts(starts.astype(index), neighbours.astype(index), parts, seed, self.hosts)
        part = fill_empty(part, parts)  # as `assign` does for partition=metis
        edges = np.diff(starts)
        return part[np.where(edges[low] <= edges[high], low, high)]
