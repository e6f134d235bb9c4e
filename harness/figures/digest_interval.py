"""DIGEST's Fig. 6: the interval N between synchronisations."""

from harness.figures.panels import accuracy_panels, knob

TITLE = "DIGEST, Fig. 6: accuracy by synchronisation interval"
GRAPHS = [["twin/reddit dataset.scale=0.02"]]


def sweeps(graph: str) -> list[str]:
    return [f"system=digest system.interval=1,5,10,20 dataset={graph} partition=metis gpus=4 epochs=150 seed=1 evaluate.every=5"]


def draw(groups):
    groups = sorted(groups, key=lambda group: knob(group, "system.interval"))
    return accuracy_panels(groups, "Accuracy by interval", ("seconds", "megabytes"), lambda group: f"N = {knob(group, 'system.interval')}")
