"""What somebody may give: a run folder with a link in it, values of keys, and files to import that are
damaged or made to do harm; in this process, beside what the import does in its own.
"""

import contextlib
import io
import random
import resource
import shutil
import warnings
from pathlib import Path

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.data.importing.__main__ import main
from harness.results import files
from harness.run.prepare import locked
from tests.importing import edge_tables, loaded, sample, tensors_of
from tests.test_bounds import accepted, changed
from tests.test_importing_hostile import KINDS
from tests.torture.tally import REFUSED, VALID, Tally, damage

LINKS = (
    "environment.json.part",
    "config.yaml.part",
    "running.lock",
    "checkpoints",
    "stream",
    "stream/x",
    "summary.json",
)
MOST = 2_500_000  # kB that a process which reads may take
EXAMPLES = 20  # of keys and values in a round


def _largest_child() -> int:
    """kB that the largest of this process's children took that have ended so far."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss


def drawn(strategy: st.SearchStrategy, draw: random.Random) -> list:
    """Some examples of a strategy, the simplest first."""
    found: list = []

    @seed(draw.getrandbits(32))
    @settings(
        max_examples=EXAMPLES,
        database=None,
        derandomize=False,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collected(example) -> None:
        found.append(example)

    collected()
    return found


class Given:
    """Whole sources, made once, of which each round damages a copy."""

    def __init__(self, folder: Path, tally: Tally, draw: random.Random):
        self.folder, self.tally, self.draw = folder / "given", tally, draw
        self.whole = self.folder / "whole"
        self.whole.mkdir(parents=True)
        (self.folder / "mine").mkdir()
        (self.folder / "mine" / "notes").write_text("mine")
        self.tables = edge_tables(self.whole, sample(), suffix=".csv.gz")
        torch.save(tensors_of(sample(weighted=True)), self.whole / "a.pt")

    def linked(self) -> None:
        """A link in a run folder: it is not taken, and what the link points to stays as it is."""
        name, run = self.draw.choice(LINKS), self.folder / "run"
        (run / name).parent.mkdir(parents=True)
        (run / name).symlink_to(self.folder / "mine" / self.draw.choice(["", "notes"]))
        try:
            with locked(run):
                files.write_json_atomic(run / "environment.json", {"x": 1})
            outcome = None
        except InputError as error:
            outcome = REFUSED if "\n" not in str(error) else None
        content = [path.read_text() for path in (self.folder / "mine").iterdir()]
        self.tally.note("run folder with a link", outcome if content == ["mine"] else None, name)
        shutil.rmtree(run)

    def argued(self) -> None:
        """Runs of which a key has any value: each is refused in one sentence, or is one."""
        for run, system, key, value in drawn(changed(), self.draw):
            try:
                self.tally.note("value of a key", VALID if accepted(run) else REFUSED)
            except Exception as error:
                self.tally.note("value of a key", None, f"system={system} {key}={value!r}: {error!r}")

    def imported(self) -> None:
        """A damaged table or file of tensors, or one with a tensor that is no array."""
        copy = self.folder / "copy"
        shutil.copytree(self.whole, copy)
        kind = self.draw.choice(["edges", "pyg", "made to do harm"])
        out = self.folder / "g.npz"
        words = ["pyg", copy / "a.pt"]
        if kind == "edges":
            words = [copy / word.name if isinstance(word, Path) else word for word in self.tables]
        if kind == "made to do harm":
            how = self.draw.choice(sorted(KINDS))
            key, made, _ = KINDS[how]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.save({**tensors_of(sample(weighted=True)), key: made()}, copy / "a.pt")
        else:
            path = self.draw.choice([word for word in words if isinstance(word, Path)])
            how = damage(path, [path, copy / "a.pt"], self.draw)
        said, before, largest = io.StringIO(), set(self.folder.rglob("*")), _largest_child()
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
                code = main([*map(str, words), "--out", str(out)])
            if code == 0:
                loaded(out)
            told = said.getvalue()
            fine = code == 0 or (code == 2 and told.count("\n") == 1 and told[:-1].isprintable())
            fine &= set(self.folder.rglob("*")) - {out} == before
            fine &= _largest_child() <= max(largest, MOST)  # one from before may have been larger
            self.tally.note(
                f"import, {kind}", (VALID if code == 0 else REFUSED) if fine else None, f"{how}: {told}"
            )
        except Exception as error:
            self.tally.note(f"import, {kind}", None, f"{how}: {error!r}")
        finally:
            out.unlink(missing_ok=True)
            shutil.rmtree(copy)
