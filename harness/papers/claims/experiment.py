"""An experiment: what is run, at which sizes, and what of the papers it decides (`conf/experiment/`)."""

import argparse
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from harness.base import yaml_text
from harness.base.errors import InputError, choice, typed
from harness.base.words import key_of, key_values
from harness.papers.claims import cells, published
from harness.papers.claims.claim import Claim, Need, Size, check, named
from harness.papers.claims.verdict import CAUSES
from harness.run import runner

FOLDER = Path(runner.CONF) / "experiment"
SIZES = ("smoke", "small", "paper")
KEYS = ("title", "rows", "by", "sizes", "draw", "cause", "because", "fits", "claims", "needs")


@dataclass(frozen=True)
class Experiment:
    """What is run and what it decides.

    name    of its file
    title   what is compared
    rows    overrides by row
    sizes   by name, of "smoke", "small" and "paper"
    cause, because   in the file alone: those of its claims that name none
    draw    what draws its runs (a file of `harness/papers/figures/`), each with its options. The option
            `rows` gives the rows that are drawn, each with its name in the picture; without it all rows are
            drawn, on all graphs
    fits    printed rows that clusters are fitted to from its runs (`harness.papers.claims.fit`), as the file
            has them
    claims  what its runs decide
    needs   parts of entries that wait for something
    folder  where its file is
    """

    name: str
    title: str = ""
    rows: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, Size] = field(default_factory=dict)
    draw: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    fits: Sequence[Any] = ()
    claims: tuple[Claim, ...] = ()
    needs: tuple[Need, ...] = ()
    folder: Path = FOLDER

    def rows_on(self, size: str, graph: str) -> list[str]:
        """The rows to run on a graph. These are all rows where all are drawn, the size does not have the
        graph, or no claim is on it; else all but those that only claims on other graphs need."""
        graphs = self.sizes[size].graphs
        if graph not in graphs or any("rows" not in options for options in self.draw.values()):
            return list(self.rows)
        needed = {row: False for claim in self.claims for row in claim.needed}
        for claim in self.claims:
            if graph in self.on(size, claim.graph):
                needed |= dict.fromkeys(claim.needed, True)
        return [row for row in self.rows if needed.get(row, True)] or list(self.rows)

    def sweeps(self, row: str, size: str, graph: str | None = None) -> list[str]:
        """The sweep of a row on each graph of a size that `graph` means (`on`)."""
        return [self.sweep(row, size, each) for each in self.on(size, graph)]

    def sweep(self, row: str, size: str, graph: str) -> str:
        """The sweep of a row on a graph, as on the command line.

        Where several say something of one key, the row wins over the graph, and the graph over the size.
        EPOCHS/5 stands for a fifth of the size's epochs, GPUS/4 for a fourth of its workers, and so on.
        """
        return _sweep(self.rows[row], graph, self.sizes[size].runs)

    def on(self, size: str, graph: str | None) -> list[str]:
        """The graphs of a size that a claim's graph means: by all of its overrides or else by its name, or
        names with commas between them; all of them where none is given."""
        graphs = self.sizes[size].graphs
        if graph is None or graph in graphs:
            return [graph] if graph else graphs
        return [each for each in graphs if named(each) in graph.split(",")]


@functools.lru_cache(maxsize=4096)
def _sweep(row: str, graph: str, size: str) -> str:
    """What `Experiment.sweep` says of these words; kept, since every claim asks for those of its rows."""
    option, *words = f"dataset={graph}".split()
    runs, more = key_values(size.split()), key_values(words)
    own = row.split()
    both = {**runs, **more}
    for key in {"epochs", "gpus", "workers"} & both.keys():
        own = [_part(word, _one_name(key).upper(), int(both[key])) for word in own]
    keys, of_graph = set(map(_one_name, key_values(own))), set(map(_one_name, more))
    beside = [f"{key}={value}" for key, value in more.items() if _one_name(key) not in keys]
    common = [f"{k}={value}" for k, value in runs.items() if _one_name(k) not in keys | of_graph]
    return " ".join([*own, option, *beside, *common])


def _one_name(key: str) -> str:
    """The key, which is "gpus" under both of its names."""
    return "gpus" if key == "workers" else key


def _part(word: str, name: str, total: int) -> str:
    """A word in which NAME/5 has become a fifth of `total`, and at least 1."""
    return re.sub(rf"{name}/(\d+)", lambda found: str(max(1, total // int(found[1]))), word)


def load(folder: Path) -> dict[str, Experiment]:
    """A folder's experiments by name, in alphabetical order. InputError names the file that is no good."""
    made = {path.stem: _of(path) for path in sorted(folder.glob("*.yaml"))}
    if not made:
        raise InputError(f"{folder} holds no experiment: put NAME.yaml there (docs/howto/claims.md)")
    return made


def add_rows(parser: argparse.ArgumentParser) -> None:
    """The option `--row`, whose values `with_rows` takes."""
    parser.add_argument(
        "--row",
        action="append",
        default=[],
        metavar="NAME=OVERRIDES",
        help='one more row, as mine="system=mine system.x=1", beside all of an experiment or those at the one'
        " setting; may be repeated",
    )


def with_rows(rows: Mapping[str, str], more: Sequence[str]) -> dict[str, str]:
    """`rows` and `more` of them ("NAME=OVERRIDES"). InputError where one of `more` cannot be read, or has the
    name of another row."""
    found = dict(rows)
    for given in more:
        name = key_of(given)
        asked = given.removeprefix(f"{name}=")
        if not name or not any(word.startswith("system=") for word in asked.split()):
            raise InputError(f'row="{given}" names no system: give --row NAME="system=SYSTEM system.KNOB=1"')
        if name in found:
            raise InputError(f'row="{given}" has the name of another row: give it a name of its own')
        found[name] = asked
    return found


def one(name: str, folder: Path = FOLDER) -> Experiment:
    """The experiment of this name. InputError where there is none, or its file cannot be used."""
    choice("experiment", name, [path.stem for path in folder.glob("*.yaml")])
    return _of(folder / f"{name}.yaml")


def _of(path: Path) -> Experiment:
    """The experiment of a file. InputError, which names it, where it cannot be used."""
    try:
        return replace(_read(path.stem, yaml_text.read(path)), folder=path.parent)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path}: {str(error).splitlines()[0]}") from None


@functools.lru_cache(maxsize=256)
def _read(name: str, text: str) -> Experiment:
    """The experiment that a file's text describes; kept: some have hundreds of claims to check."""
    return _experiment(name, yaml_text.parsed(text))


def _experiment(name: str, given: Any) -> Experiment:
    if not isinstance(given, dict):
        raise InputError("it holds no keys: give title, rows, sizes and claims")
    for key in given:
        choice("key", key, KEYS)
    sizes = _sizes(_shaped("sizes", given.get("sizes"), dict, "as small: {graphs: [cora], ...}"))
    rows, by = (_words(key, given.get(key) or {}) for key in ("rows", "by"))
    cause, because = (str(given.get(key) or "") for key in ("cause", "because"))
    if cause:
        choice("cause", cause, CAUSES)
    fits = _shaped("fits", given.get("fits"), list, "of printed rows (harness.papers.claims.fit)")
    for i, each in enumerate(fits):
        _shaped(f"fits[{i}]", each, dict, "entry, printed, ...")
    needs = _shaped("needs", given.get("needs"), list, "each with entry, part and needs")
    for i, each in enumerate(needs):
        _shaped(f"needs[{i}]", each, dict, "entry, part and needs")
    asked = [
        (f"claims[{i}]", claim if claim.cause else replace(claim, cause=cause, because=of or because))
        for i, each in enumerate(_shaped("claims", given.get("claims"), list, "each with entry, says, ..."))
        for claim in _cells(each, f"claims[{i}]", name)
        for of in [claim.because]
    ]
    experiment = Experiment(
        name,
        str(given.get("title", "")),
        cells.rows_by(rows, by),
        sizes,
        _drawings(given.get("draw") or {}),
        fits,
        tuple(claim for _, claim in asked),
        tuple(typed(Need, each, f"needs[{i}]") for i, each in enumerate(needs)),
    )
    if experiment.claims and not (experiment.rows and experiment.sizes):
        raise InputError("its claims have no runs: give rows and sizes")
    told = set()
    for where, claim in asked:
        check(where, claim, experiment.rows, sizes)
        if (claim.entry, claim.says) in told:
            raise InputError(f'{where}.says="{claim.says}" stands twice for {claim.entry}: say what differs')
        told.add((claim.entry, claim.says))
    for i, need in enumerate(experiment.needs):
        choice(f"needs[{i}].entry", need.entry, published.experiments())
    return experiment


def _shaped(key: str, given: Any, kind: type, give: str) -> Any:
    """The list or the block of keys that stands at `key`, an empty one where nothing does. InputError, which
    ends with what to `give`, where something else does."""
    if given is not None and not isinstance(given, kind):
        raise InputError(f"{key}={given}: give {'a list' if kind is list else 'keys'}, {give}")
    return kind() if given is None else given


def _sizes(given: Mapping[str, Any]) -> dict[str, Size]:
    sizes = {}
    for size, how in given.items():
        choice("size", size, SIZES)
        where = f"sizes.{size}"
        sizes[size] = typed(Size, _shaped(where, how, dict, "graphs, runs and minutes"), where)
        _texts(f"{where}.graphs", sizes[size].graphs)
        more = [word for graph in sizes[size].graphs for word in graph.split()[1:]]
        for word in [*more, *sizes[size].runs.split()]:
            if "=" not in word:
                raise InputError(f'{where}: "{word}" is no override: give KEY=VALUE')
    return sizes


def _texts(where: str, given: Sequence[Any]) -> None:
    """InputError where a list holds something else than texts, which `typed` lets pass where it is a list."""
    for each in given:
        if not isinstance(each, str):
            raise InputError(f"{where}={given}: give texts, not {each}")


def _words(key: str, given: Any) -> dict[str, str]:
    if not isinstance(given, dict):
        raise InputError(f"{key}={given}: give names, each with its overrides, as NAME: system=SYSTEM")
    return {str(name): str(how) for name, how in given.items()}


def _cells(given: Any, where: str, name: str) -> list[Claim]:
    """A claim of a file, or, where it stands for the cells of a table, one for each."""
    if not isinstance(given, dict):
        raise InputError(f"{where}={given}: give its entry, says, measure and rows")
    for key in {"series", "step"} & set(given):
        raise InputError(f"{where}.{key} is made of each: leave it out")
    each, printed, without = (given.get(key) for key in cells.KEYS)
    claim = typed(Claim, {key: value for key, value in given.items() if key not in cells.KEYS}, where)
    _texts(f"{where}.rows", claim.rows)
    for ours, _ in cells.each_of(each, where) if each else [({}, {})]:
        choice(f"{where}.entry", cells.named(claim.entry, ours, where), (*published.experiments(), name))
    return cells.expanded(claim, each, printed, without, where)


def _drawings(given: Any) -> dict[str, dict[str, Any]]:
    if isinstance(given, dict) and all(isinstance(options, dict | None) for options in given.values()):
        return {str(name): {str(key): value for key, value in (options or {}).items()}
                for name, options in given.items()}  # fmt: skip
    raise InputError(f"draw={given}: give the names of drawings, each with its options, as NAME: {{}}")
