"""halobench submit: hand in results, check what was handed in, and rank it."""

import random
import shlex
from collections import Counter
from pathlib import Path

from harness.base.bounds import MOST
from harness.base.errors import InputError, check_place, within, writing
from harness.base.scratch import scratch
from harness.base.subcommand import AS_WRITTEN, RUN_HELP, Parser, command
from harness.base.target import ALLOW
from harness.base.terminal import counted
from harness.run.runner import Places
from harness.submissions import bundle as bundles
from harness.submissions import check as checks
from harness.submissions import ranking

FOLDER = Path("results/submissions")


@command("halobench submit")
def main(words: list[str], program: str) -> None:
    parser = Parser(
        prog=program,
        description="make a bundle of finished runs; submit check checks one, submit page ranks some",
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help=RUN_HELP)
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="where the bundle goes; the folder's name is its name",
    )
    parser.add_argument("--by", required=True, help="who hands it in")
    parser.add_argument("--licence", default="CC-BY-4.0", help="of the bundle's files (default: CC-BY-4.0)")
    parser.add_argument("--track", default="fixed", help="fixed or tuned (default: fixed)")
    parser.add_argument("--trials", type=int, default=0, help="of each row of a tuned track")
    parser.add_argument("--note", default="", help="what else is to be known")
    parser.add_argument("--code", type=Path, nargs="+", default=[], metavar="FILE",
                        help="Python files of systems that are not of this tree")  # fmt: skip
    given = parser.parse_args(words)
    head = bundles.Submission(given.out.name, given.by, given.licence, given.track, given.trials, given.note)
    made = bundles.gather(given.runs, given.out, head, given.code)
    if wrong := list(checks.of_rules(made)):
        for problem in wrong:
            print(f"wrong: {problem}")
        raise InputError(f"{given.out} was not written: run what lacks, or name only the runs to hand in")
    bundles.write(made, given.code)
    size = sum(path.stat().st_size for path in bundles.files_below(given.out))
    print(f"{given.out}: {len(made.runs)} runs in {len(made.rows)} rows, {size / 1e6:.1f} MB")
    for path in sorted({str(run.keys["dataset.path"]) for run in made.runs.values() if run.own_graph}):
        print(f"the graph {path} is not in it: whoever checks the bundle needs that file")
    allow = f"{ALLOW}={','.join(path.stem for path in given.code)} " if given.code else ""
    print(f"next: {allow}halobench submit check {shlex.quote(str(given.out))}")


@command("halobench submit check")
def check(words: list[str], program: str) -> int:
    parser = Parser(prog=program, description=checks.__doc__, formatter_class=AS_WRITTEN)
    parser.add_argument("bundle", type=Path, help="the folder of a bundle")
    parser.add_argument("--share", type=float, default=0.1, help="of the runs, made again (default: 0.1)")
    parser.add_argument("--draw", type=int, help="by which they are drawn (default: at random)")
    for name, place, says in (
        ("cache", "results/cache", "graphs and shards"),
        ("data-dir", "data", "raw data sets"),
    ):
        parser.add_argument(f"--{name}", type=Path, default=Path(place), help=f"{says} (default {place})")
    given = parser.parse_args(words)
    within("share", given.share, 0, 1)
    draw = random.randrange(MOST) if given.draw is None else given.draw
    read = bundles.read(given.bundle)
    with scratch() as folder:
        places = Places(folder, given.cache, given.data_dir)
        found = []
        for problem in checks.problems(read, places, given.share, draw, print):
            print(f"wrong: {problem}")
            found.append(problem)
    if found:
        faults = "1 fault: mend it" if len(found) == 1 else f"{len(found)} faults: mend them"
        raise InputError(f"{given.bundle} has {faults}, and make the bundle again")
    print(f"{given.bundle}: {len(read.runs)} runs agree; drawn by --draw {draw}")
    return 0


@command("halobench submit page")
def page(words: list[str], program: str) -> None:
    parser = Parser(prog=program, description=ranking.__doc__, formatter_class=AS_WRITTEN)
    parser.add_argument("bundles", nargs="*", type=Path, metavar="BUNDLE",
                        help=f"folders of bundles (default: those in {FOLDER})")  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path("submissions.html"), help="the page")
    given = parser.parse_args(words)
    folders = given.bundles or sorted(path.parent for path in FOLDER.glob(f"*/{bundles.HEAD}"))
    if not folders:
        raise InputError(
            f"{FOLDER} holds no bundle: name their folders, as halobench submit page BUNDLE_A BUNDLE_B"
        )
    check_place("out", given.out)
    read = [bundles.read(folder) for folder in folders]
    for name, count in Counter(each.head.name for each in read).items():
        if count > 1:
            raise InputError(f"{count} of the bundles are called {name}: give each once, or rename one")
    for each in read:
        for problem in checks.quick(each):
            raise InputError(f"{each.folder}: {problem}")
    words = ["halobench", "submit", "page", *map(str, given.bundles), "--out", str(given.out)]
    with writing(given.out, "give another --out"):
        given.out.write_text(ranking.page(read, shlex.join(words)))
    print(f"{given.out}: {counted(len(read), 'bundle')}; open it in a browser")
