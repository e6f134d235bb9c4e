"""What all pages share: their frame, tables that can be sorted, pictures with captions."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

import harness

HERE = Path(__file__).parent
Picture = tuple[Markup, str]  # the picture, and its caption


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    best   whether it holds the best value of its column
    link   the id of the element that it links to; "" for most cells
    """

    text: str
    best: bool = False
    link: str = ""


@dataclass(frozen=True)
class Table:
    """A table that can be sorted.

    headings   (heading, whether its column is sorted as text, the column's name in a CSV)
    """

    caption: str
    headings: list[tuple[str, bool, str]]
    rows: list[list[Cell]]


def rendered(template: str, title: str, **values: Any) -> str:
    """A page that needs no other file.

    template   a file of this folder that extends base.html.j2
    values     what the template reads
    """
    layout = Environment(loader=FileSystemLoader(HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return layout.get_template(template).render(
        title=title,
        version=harness.__version__,
        css=Markup((HERE / "page.css").read_text()),
        js=Markup((HERE / "page.js").read_text()),
        **values,
    )
