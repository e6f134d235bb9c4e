"""PSC-GCN's Fig. 6: staleness tau, at a sampling rate of 0.1."""

from harness.figures.panels import accuracy_panels, knob

TITLE = "PSC-GCN, Fig. 6: accuracy by staleness tau"
GRAPHS = [["twin/reddit dataset.scale=0.02"]]


def sweeps(graph: str) -> list[str]:
    return [
        f"system=pscgcn system.tau=0,1,2,4 system.rate=0.1 dataset={graph} partition=metis gpus=4 epochs=100"
        " seed=1 evaluate.every=5"
    ]


def draw(groups):
    return accuracy_panels(
        groups,
        "Accuracy by staleness",
        ("epoch", "seconds"),
        lambda group: f"tau = {knob(group, 'system.tau')}",
    )
