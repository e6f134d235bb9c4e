"""For the site: lines of a docstring such as `rows   [m, F] remote rows` become a list, a definition each,
and other lists are set apart."""

from __future__ import annotations

import re

import griffe

LINE = re.compile(r"^(\S+(?: \S+)*?(?:,|)) {2,}(\S.*)$|^(\S+(?:, \S+)*) {2,}(\S.*)$")


class Definitions(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_) -> None:
        if obj.docstring:
            obj.docstring.value = listed(obj.docstring.value)


def listed(text: str) -> str:
    """The docstring with definitions as a Markdown list; lines further in belong to the one above."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        match = LINE.match(line)
        if match:
            name, meaning = match[1] or match[3], match[2] or match[4]
            lines += ([] if inside or not lines or not lines[-1] else [""]) + [f"- `{name}`: {meaning}"]
            inside = True
        elif inside and line.startswith("  ") and line.strip():
            lines[-1] += f" {line.strip()}"
        else:
            # Markdown begins a list after an empty line only.
            begins = line.startswith("- ") and lines and lines[-1] and lines[-1][0] not in "- "
            lines += ([""] if begins or (inside and line.strip()) else []) + [line]
            inside = False
    return "\n".join(lines)
