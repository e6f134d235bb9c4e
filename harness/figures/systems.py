"""Every system on one graph: accuracy over epochs, time and bytes, and where an epoch's time goes.

`vanilla` stands there in both forms, since only one side caching the static features is no comparison, and so
does the control, whose remote rows are zero: a system no better than it uses no remote information.
"""

from harness.report import plot, style
from harness.report.table import only_section

TITLE = "all systems on one graph: accuracy over epochs, time and bytes; compute and communication"
GRAPHS = [["twin/reddit dataset.scale=0.02"], ["amazon-photo dataset.split=low_label"]]


def sweeps(graph: str) -> list[str]:
    own_partition = f"dataset={graph} gpus=4 epochs=100 seed=1 evaluate.every=5"
    how = f"{own_partition} partition=metis"
    return [
        f"system=vanilla system.features=refetch,once {how}",
        f"system=zero_halo,local {how}",
        f"system=cagnet,skipg,sancus,adaqp,bns system.features=once {how}",
        f"system=pscgcn,digest,digest_a,pipegcn,llcg {how}",
        f"system=capgnn cluster=capgnn/x4 {how}",
        f"system=cdfgnn {own_partition}",
    ]


def draw(groups):
    return plot.pictures(only_section(groups), style.strokes_of(group.label for group in groups))
