"""What reports know of a `dataset` block, too: its names and defaults."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

LABELS_PER_CLASS = 20  # vertices that train under low_label where nothing else is said
UNNAMED = "npz"  # the name that conf/dataset/npz.yaml gives any graph of one's own


def name_of(block: Mapping[str, Any]) -> str:
    """What people call the graph of a `dataset` block: its name; for `dataset=npz` without a name of its own,
    the name of the file without its ending."""
    name, path = str(block["name"]), block.get("path")
    return Path(path).stem if name == UNNAMED and block.get("source") == "npz" and path else name
