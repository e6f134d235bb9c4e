"""The commands on README's, CONTRIBUTING's and the pages of docs/: each line of a block that starts one."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from harness.cli import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]
# Programs that a line of a block may start, after what it sets for them.
PROGRAMS = re.compile(
    r"(?:[A-Z_]+=\S+ )*"
    r"(?:\S*/)?(?:python|halobench|make|torchrun|srun|git|pip|pre-commit|docker|pytest)\s[^=:]"
)
# `python -m MODULE` of a subcommand.
MODULES = {"harness": "run", "harness.importing": "import"} | {
    f"harness.{name}": name for name in ("report", "figures", "study", "bench", "fidelity", "replay", "plan")
}


@dataclass(frozen=True)
class Command:
    """A command of a page, as its words. `output` is the file that standard output goes to, if any."""

    page: str
    line: str
    words: tuple[str, ...]
    output: str | None = None

    @property
    def name(self) -> str:
        """The subcommand of halobench, however it is called ("run", "report claims"), else its program."""
        if self.words[0] == "halobench":
            two = " ".join(self.words[1:3])
            return two if two in COMMANDS else self.words[1]
        if self.words[:2] == ("python", "-m"):
            return MODULES.get(self.words[2], self.words[2])
        return "set before" if "=" in self.words[0] else Path(self.words[0]).name

    @property
    def rest(self) -> list[str]:
        """What stands behind the name."""
        if self.words[0] == "halobench":
            return list(self.words[1 + len(self.name.split()) :])
        return list(self.words[3 if self.words[:2] == ("python", "-m") else 1 :])


def blocks(text: str) -> list[str]:
    """The lines of a page that stand in blocks of the shell or of no language, or are indented by four; a
    command that goes on below is one line.
    """
    text = re.sub(r"[ \t]*\\\n\s*", " ", text)
    lines, language = [], None
    for line in text.splitlines():
        if line.startswith("```"):
            language = None if language is not None else line[3:].strip()
        elif language in ("", "sh", "bash") or (language is None and re.match(r" {4}\S", line)):
            lines.append(line.strip())
    return lines


def commands() -> list[Command]:
    found = []
    for page in PAGES:
        for line in blocks(page.read_text()):
            if PROGRAMS.match(line):
                words, _, output = re.sub(r"\s+# .*$", "", line).partition(" > ")
                found.append(
                    Command(
                        str(page.relative_to(ROOT)), line, tuple(shlex.split(words)), output.strip() or None
                    )
                )
    return found


def mentioned() -> list[tuple[str, str]]:
    """Page and text of each command in running text: `make NAME`, `halobench ...`, `python -m harness...`."""
    pattern = re.compile(r"`((?:make|halobench|python -m harness\S*)\b[^`]*)`")
    return [
        (str(page.relative_to(ROOT)), text)
        for page in PAGES
        for text in pattern.findall(" ".join(page.read_text().split()))
    ]
