"""`python -m tests.torture [--seed N] [--seconds S] [--page FILE]`: the campaign, and its table."""

import argparse
import os
import random
import re
import secrets
import sys
import tempfile
import time
from pathlib import Path

from tests.launching import Place
from tests.torture.commands import Commands
from tests.torture.given import Given
from tests.torture.stored import Stored
from tests.torture.tally import Tally
from tests.torture.watched import Watch

PART = re.compile(r"(<!-- made by make torture -->\n).*?(<!-- end -->)", re.S)
BESIDE = 20  # rounds in this process to each round with a command


def campaign(place: Place, folder: Path, seed: int, seconds: float) -> Tally:
    """Rounds for about so many seconds; each is drawn from (seed, its number)."""
    tally = Tally(seed)
    print(f"torture: seed {seed}, {seconds:.0f} s", file=sys.stderr, flush=True)
    draw = random.Random()
    c, stored, given = Commands(place, tally, draw), Stored(folder, tally, draw), Given(folder, tally, draw)
    # Damage is of six kinds, the others of one each.
    kinds = [c.killed, c.signalled, c.frozen, c.impostor, c.full, c.limited, c.stranger, c.argued]
    kinds += [c.damaged] * 3
    began = time.monotonic()
    with Watch(place, folder, tally) as watch:
        while time.monotonic() - began < seconds:
            draw.seed(f"{seed} {tally.rounds}")
            for _ in range(BESIDE):
                stored.report()
                stored.raw()
                given.linked()
            given.imported()
            given.argued()
            draw.choice(kinds)()
            watch.check()
            tally.rounds += 1
    place.settle()
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="default: drawn, and printed")
    parser.add_argument("--seconds", type=float, default=3600.0, help="about how long (default: an hour)")
    parser.add_argument("--page", type=Path, help="a page whose made part becomes the table")
    given = parser.parse_args()
    if given.page and not given.page.is_file():
        parser.error(f"--page {given.page} is no page that is there: give one, as docs/reliability.md")
    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    with tempfile.TemporaryDirectory(prefix="halobench-torture-") as name:
        for each in ("home", "place"):
            (Path(name) / each).mkdir()
        os.environ["HOME"] = f"{name}/home"
        place = Place(Path(name) / "place")
        try:
            tally = campaign(place, Path(name), seed, given.seconds)
            _report(tally, given.page)  # before a process that does not end can take it away
        finally:
            place.close()
    return 1 if tally.failures else 0


def _report(tally: Tally, page: Path | None) -> None:
    said = (
        f"{tally.count()} times in {tally.rounds} rounds, seed {tally.seed}; the processes of a command"
        f" together had at most {tally.memory / 1e9:.1f} GB.\n\n{tally.table()}"
    )
    print(said, flush=True)
    if page:
        page.write_text(PART.sub(lambda part: f"{part[1]}{said}\n{part[2]}", page.read_text()))


if __name__ == "__main__":
    sys.exit(main())
