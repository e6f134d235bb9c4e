"""Damage that is read in this process: finished runs in a report, and raw files of every format."""

import random
import shutil
import warnings
from pathlib import Path

from harness.base.errors import InputError
from harness.data.graph import validate
from tests import traces
from tests.raw_files import block, small, write
from tests.reported import told_of
from tests.torture.tally import REFUSED, SAME, VALID, Tally, damage

FORMATS = ("reddit", "yelp", "flickr", "coauthor-cs", "cora", "tolokers", "ogbn-arxiv", "ogbn-papers100m")


class Stored:
    """Whole folders, made once, of which each round damages a copy."""

    def __init__(self, folder: Path, tally: Tally, draw: random.Random):
        self.folder, self.tally, self.draw = folder, tally, draw
        how = {"stats": {"vertices": 10}, "ran_on": {"role": ""}}
        made = [traces.finished(folder / f"run{seed}", traces.config(seed=seed), **how) for seed in (1, 2)]
        self.runs = [traces.sealed(run) for run in made]
        self.reported = told_of(self.runs[0])
        for name in FORMATS:
            write(name, folder / "raw" / name, small())

    def report(self) -> None:
        """A damaged file of a finished run: the report names it, or shows what it showed before."""
        copy = self.folder / "damaged"
        shutil.copytree(self.runs[0], copy)
        path = self.draw.choice(sorted(p for p in copy.iterdir() if p.is_file()))
        how = damage(path, [path, self.runs[1] / path.name], self.draw)
        try:
            # Without a summary the run counts as one that has not finished: what was measured is the same.
            same = told_of(copy) == self.reported or not (copy / "summary.json").exists()
            self.tally.note("file of a finished run", SAME if same else None, how)
        except InputError as error:
            self.tally.note("file of a finished run", REFUSED if "\n" not in str(error) else None, how)
        except Exception as error:
            self.tally.note("file of a finished run", None, f"{how}: {error!r}")
        finally:
            shutil.rmtree(copy)

    def raw(self) -> None:
        """A damaged raw file: refused, or a graph that every system can train on."""
        name = self.draw.choice(FORMATS)
        copy = self.folder / "damaged"
        shutil.copytree(self.folder / "raw" / name, copy)
        found = sorted(path for path in copy.rglob("*") if path.is_file())
        path = self.draw.choice(found)
        how = damage(path, found, self.draw)
        known = path.suffix in (".npz", ".npy", ".json", ".gz")
        what = f"raw file, {path.suffix[1:] if known else 'pickle or text'}"
        if not path.exists():  # it would be asked for on the network
            shutil.rmtree(copy)
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                validate(block(name).load(copy, seed=1))
            self.tally.note(what, VALID)
        except InputError as error:
            self.tally.note(what, REFUSED if "\n" not in str(error) else None, f"{name}: {how}")
        except Exception as error:
            self.tally.note(what, None, f"{name}: {how}: {error!r}")
        finally:
            shutil.rmtree(copy)
