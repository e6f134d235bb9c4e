"""What grids of two and three dimensions would send and hold, by their published formulas. No system here is
such a grid: in a grid a worker owns some columns of some rows, and here a worker owns whole rows.

With V vertices, E edges, P workers, and layers l that map width f_l to f_{l+1}; words are 4 bytes, and an
entry of the matrix is one word, as the formulas count:

    CAGNET 2D   P = p^2   sum_l (2 E + 8 V f) / p    words of each worker per epoch, f = (f_l + f_{l+1}) / 2
                          (E + V sum f_l) / P        words held by each worker
    CAGNET 3D   P = p^3   sum_l (2 E + 12 V f) / p^2;                    E / P + V sum f_l / p^2
    Plexus      P = p^3   sum_l (p - 1) V (2 (f_l + f_{l+1}) + 4 f_l)    words of all workers per epoch;
                          6 E / p^2: the matrix alone

CAGNET: Tripathy, Yelick, Buluc, SC 2020. Plexus: Ranjan, Singh, Wei, Bhatele, SC 2025, arXiv 2505.04083.
Departures: CAGNET's formulas are from memory of the paper, and have one width f for all layers; the mean of a
layer's two is ours. Plexus's are derived from its model of communication; it trains the features too.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from harness.core.cluster import Cluster
from harness.model.replay.platform import GIGA, platform_of

WORD = 4  # bytes
POWERS = {2: "square", 3: "cube"}


@dataclass(frozen=True)
class Grid:
    """What one grid would send and hold.

    bytes   of all workers per epoch; None where there is no such grid
    memory  bytes of each worker; None where there is no such grid
    note    why there is no such grid, or what `memory` leaves out
    """

    name: str
    bytes: float | None = None
    memory: float | None = None
    note: str = ""


def grids(vertices: int, edges: int, widths: Sequence[int], workers: int) -> list[Grid]:
    """CAGNET 2D, CAGNET 3D and Plexus on this number of workers.

    edges    in both directions
    widths   [L + 1]: features, hidden layers, classes
    """
    layers = list(zip(widths, widths[1:]))

    def words(rows: int) -> float:
        """CAGNET's words per epoch before they are divided by the grid's side (2D) or its square (3D)."""
        return sum(2 * edges + rows * vertices * (f_in + f_out) / 2 for f_in, f_out in layers)

    held = vertices * sum(widths)
    plexus = vertices * sum(2 * (f_in + f_out) + 4 * f_in for f_in, f_out in layers)
    made = []
    for name, power in (("CAGNET 2D", 2), ("CAGNET 3D", 3), ("Plexus", 3)):
        called, p = f"{name} (published formula)", round(workers ** (1 / power))
        if p**power != workers:
            made.append(Grid(called, note=f"{workers} workers are no {POWERS[power]}"))
            continue
        if name == "CAGNET 2D":
            sent, memory = workers * words(8) / p, (edges + held) / workers
        elif name == "CAGNET 3D":
            sent, memory = workers * words(12) / p**2, edges / workers + held / p**2
        else:
            sent, memory = (p - 1) * plexus, 6 * edges / p**2
        note = "memory of the matrix alone" if name == "Plexus" else ""
        made.append(Grid(called, WORD * sent * (workers > 1), WORD * memory, note))
    return made


def communication(sent: float, cluster: Cluster, workers: int, per_host: int | None = None) -> float:
    """Seconds that `sent` bytes of all workers take over the slowest of the links that they cross. All
    workers send equal shares at once; latency and waiting are left out. A bridge whose rate is not given
    takes no time; InputError where the cluster does not say how fast the links inside or between hosts are.
    """
    hosts = platform_of(cluster, workers, per_host).hosts
    share = max(Counter(hosts).values())  # workers that share the links of one host
    several = len({*hosts}) > 1
    rates = [(cluster.between, share)] if several else [(cluster.inside, 1)] if workers > 1 else []
    rates.append((cluster.bridge, share))
    seconds = [
        sent / workers * sharing / (GIGA * link.gbytes_per_s)
        for link, sharing in rates
        if link.gbytes_per_s is not None
    ]
    return max(seconds, default=0.0)
