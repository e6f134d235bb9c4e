"""What to call runs in a list: their system, and the keys in which its runs differ."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

from harness.results.report.groups import Run, differing, knob


def labels(runs: Sequence[Run], unsaid: Collection[str] = ()) -> list[str]:
    """The name of each run: its system, and the keys that differ among the runs of that system.

    unsaid   keys, or whole blocks, that names leave out; they always leave out data set, seed and label
    """
    alike: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for run in runs:
        alike[run.name].append(run.keys)
    elsewhere = {"seed", "dataset", "label", *unsaid}
    found = {
        name: [key for key in differing(configs) if not {key, key.partition(".")[0]} & elsewhere]
        for name, configs in alike.items()
    }
    return [
        " ".join(
            [name, *(knob(key.removeprefix("system."), keys[key]) for key in found[name] if key in keys)]
        )
        for name, keys in ((run.name, run.keys) for run in runs)
    ]
