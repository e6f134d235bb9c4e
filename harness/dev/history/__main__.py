"""What became slower, sends more or scores lower from one revision's runs to the next's."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

from harness.base import tables
from harness.base.subcommand import RUN_HELP, Parser, command
from harness.base.terminal import printable
from harness.dev.history.steps import MARGIN, Step, steps

WORSE = 1  # the exit code where something is


@command("halobench report history")
def main(words: list[str], program: str) -> int:
    """With --check exit code 1 where something became worse."""
    parser = Parser(
        prog=program,
        description="What became slower, sends more or scores lower: runs of one config that different code"
        " computed, each beside the code before it.",
    )
    parser.add_argument(
        "runs",
        nargs="*",
        default=["results"],
        metavar="RUN",
        help=f"{RUN_HELP}; of several the oldest first (default: results). Runs set aside by stale=rerun"
        " count too",
    )
    parser.add_argument("--all", action="store_true", help="list what did not change too")
    parser.add_argument(
        "--check", action="store_true", help=f"exit with {WORSE} where something became worse"
    )
    given = parser.parse_args(words)
    found = steps(given.runs)
    print(printable(text(found, given.all)))
    return WORSE if given.check and any(step.worse for step in found) else 0


def text(found: Sequence[Step], everything: bool = False) -> str:
    """A line per step that changed something, or per step, and a sentence that counts them."""
    if not found:
        return "No config was computed by more than one code here: run again with stale=rerun after a change."
    shown = [step for step in found if everything or step.words]
    columns = (
        "graph",
        "system",
        "seeds",
        "from code",
        "to code",
        "MB, %",
        "time, %",
        "score",
        "what changed",
    )
    rows = [
        [
            step.graph,
            step.name,
            str(step.seeds),
            step.before,
            step.after,
            f"{step.size.percent_more:+.1f}",
            f"{step.time.percent_more:+.1f}",
            f"{step.score:+.2f}",
            ", ".join(step.words) or step.untold or "nothing",
        ]
        for step in shown
    ]
    numbers = ("seeds", "MB, %", "time, %", "score")
    table = tables.text(columns, rows, [name for name in columns if name not in numbers])
    counted = Counter(word for step in found for word in step.words)
    told = ", ".join(f"{count} {word}" for word, count in sorted(counted.items())) or "nothing changed"
    untold = Counter(step.untold for step in found if step.untold)
    notes = [f"In {count} the time is not judged: {why}." for why, count in untold.items()]
    return "\n".join(
        filter(
            None,
            [
                table if shown else "",
                f"{len(found)} steps from one code to the next: {told}. A change of time counts from"
                f" {100 * MARGIN:g} % on, where it is told from none over seeds.",
                *notes,
            ],
        )
    )


if __name__ == "__main__":
    sys.exit(main())
