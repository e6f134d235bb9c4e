"""What a campaign counts."""

import random
import sys
from collections import Counter, defaultdict
from pathlib import Path

REFUSED, SAME, VALID = "refused in one sentence", "ended with the same bits", "taken as a valid graph or run"
COLUMNS = (REFUSED, SAME, VALID)


class Tally:
    """Outcomes by what was done; failures with the round in which they can be had again.

    memory   bytes that all processes of a command had at most
    """

    def __init__(self, seed: int):
        self.seed, self.rounds, self.memory = seed, 0, 0
        self.outcomes: dict[str, Counter[str]] = defaultdict(Counter)
        self.failures: list[str] = []

    def note(self, what: str, outcome: str | None, how: str = "") -> None:
        """`outcome` is one of COLUMNS; None: neither, and `how` says what it was."""
        self.outcomes[what][outcome or "failed"] += 1
        if outcome is None:
            self.failures.append(f"seed {self.seed}, round {self.rounds}, {what}: {how}")
            print(self.failures[-1], file=sys.stderr, flush=True)

    def count(self) -> int:
        return sum(counted.total() for counted in self.outcomes.values())

    def table(self) -> str:
        """Markdown: a row for each thing that was done."""
        lines = [f"| done | times | {' | '.join(COLUMNS)} | anything else |", f"|---|{'---:|' * 5}"]
        for what in sorted(self.outcomes):
            counted = self.outcomes[what]
            cells = [counted.total(), *(counted[column] for column in COLUMNS), counted["failed"]]
            lines.append(f"| {what} | {' | '.join(str(cell or '') for cell in cells)} |")
        return "\n".join(lines)


def is_sentence(text: str) -> bool:
    """Whether what a command printed on stderr is one error in one line, beside notes."""
    told = [line for line in text.splitlines() if not line.startswith(("note: ", "warning: "))]
    return len(told) == 1 and told[0].startswith("error: ")


def damage(path: Path, others: list[Path], draw: random.Random) -> str:
    """Damage a file, as a disk or a hand would; returns how."""
    how = draw.choice(["flip", "flip", "cut", "zeros", "empty", "missing", "swap", "noise"])
    content = bytearray(path.read_bytes())
    if how == "flip" and content:
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    elif how in ("cut", "zeros") and content:
        at = draw.randrange(len(content))
        content[at:] = b"\0" * (len(content) - at) * (how == "zeros")
    elif how == "swap":
        content = bytearray(draw.choice(others).read_bytes())
    elif how == "noise" and content:
        at = draw.randrange(len(content))
        content[at : at + 64] = draw.randbytes(len(content[at : at + 64]))
    path.unlink()  # it may be mapped, or linked from the folder that it was copied from
    if how != "missing":
        path.write_bytes(b"" if how == "empty" else content)
    return f"{how} of {path.name}"
