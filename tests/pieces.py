"""`python -m tests.pieces`: the table of docs/plugins.md, every partitioner and way to sum gradients of the
tree. Tests take what there is from `pieces` too, so that a new one is its file and its yaml.
"""

import importlib.metadata
from typing import Any

from omegaconf import OmegaConf

from harness.base.target import made, target_class
from harness.core.combine import Combine
from harness.data.partition.config import EdgeCutPartitioner, Partitioner
from tests.kept import with_tables
from tests.pages import ROOT

PAGE, COMMAND = ROOT / "docs" / "plugins.md", "python -m tests.pieces"
BASES: dict[str, type[Any]] = {"partition": Partitioner, "combine": Combine}


def pieces(group: str) -> dict[str, dict[str, Any]]:
    """The blocks of a folder of `conf/`, by name."""
    folder = ROOT / "conf" / group
    return {
        path.relative_to(folder).with_suffix("").as_posix(): OmegaConf.to_container(OmegaConf.load(path))
        for path in sorted(folder.rglob("*.yaml"))
    }


COMBINES = {name: block for name, block in pieces("combine").items() if name != "exact"}
PARTITIONERS = {name: made(block, "partition", Partitioner) for name, block in pieces("partition").items()}


def has_metis() -> bool:
    """Whether METIS with several constraints is installed; one that does not load is an error."""
    try:
        return bool(importlib.metadata.version("cmeel-metis"))
    except importlib.metadata.PackageNotFoundError:
        return False


EDGE_CUTS = {
    name: each
    for name, each in PARTITIONERS.items()
    if isinstance(each, EdgeCutPartitioner)
    and (has_metis() or name not in ("metis/balanced", "metis/extended"))
}


def table() -> str:
    rows = ["| piece | what it does | its keys |", "|---|---|---|"]
    for group, base in BASES.items():
        for name, block in pieces(group).items():
            said = " ".join((target_class(block, group, base).__doc__ or "").split("\n\n")[0].split())
            keys = ", ".join(f"`{key}`" for key in block if key != "_target_")
            rows.append(f"| `{group}={name}` | {said} | {keys} |")
    return "\n".join(rows)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(), COMMAND, table()))
