"""What all pictures of the report share: colours, titles, names of lines, files."""

import hashlib
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from harness.base.tables import natural
from harness.base.target import TREE
from harness.base.terminal import counted
from harness.results.report.groups import Group
from harness.results.track import system_of

# Okabe and Ito's palette (distinct to colour-blind readers) without its yellow, which is too pale for a line.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#555555")
BACKGROUND: dict[str, Any] = {"color": "#B8BCC0", "linestyle": "-", "marker": "o"}  # behind the others
STROKES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")
LOOKS = len(STROKES) * len(MARKERS)  # `_look` reaches all pairs, since the lengths have no common divisor
SALT = 213667  # of the hash that chooses colours and looks; this one spreads the project's systems over them
SHADES = (-0.5, 0.25)  # shades of the rows of one system: from half black to a quarter white mixed in
PARTS = {"compute": "#33638D", "comm": "#E8853D", "rest": "#C9CDD2"}
STYLE: dict[Any, Any] = {  # any: matplotlib's stubs list the names of all its parameters
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "axes.axisbelow": True,
    "axes.edgecolor": "#888888",
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "axes.labelcolor": "#222222",
}
LETTERS, HEADING = 14.0, 8.5  # letters per inch of a line of small text, and of a title
TITLE = "title"  # the gid of the texts above a picture


def title(figure: Figure, what: str, dataset: str, groups: list[Group], repeated: str, *told: str) -> None:
    """Write the title of a figure, and below it in small text the dataset (and whether it is a twin), the
    number of workers, how repeats over seeds look, and what else is `told`.

    what       the title
    repeated   how repeats look, shown where a group has several seeds
    """
    workers = {group.workers for group in groups}
    details = [
        f"{dataset} (twin: a synthetic graph)" if dataset.startswith("twin/") else dataset,
        counted(workers.pop(), "worker") if len(workers) == 1 else "",
        repeated if any(len(group.seeds) > 1 for group in groups) else "",
        *told,
    ]
    width, height = figure.get_size_inches()
    heading = textwrap.wrap(what, int(HEADING * width))
    lines = textwrap.wrap(verbatim(", ".join(filter(None, details))), int(LETTERS * width))
    room = 0.32 + 0.2 * len(heading) + 0.16 * (len(lines) - 1)
    if isinstance(engine := figure.get_layout_engine(), ConstrainedLayoutEngine):
        engine.set(rect=(0, 0, 1, 1 - room / height))
    else:
        height = _grown_above(figure, room)
    inch = 1 / height
    figure.text(
        0.012, 1 - 0.08 * inch, "\n".join(heading), va="top", fontsize=12, fontweight="bold", gid=TITLE
    )
    below: dict[str, Any] = {"va": "top", "fontsize": 9.5, "color": "#444444", "gid": TITLE}
    figure.text(0.012, 1 - (0.11 + 0.2 * len(heading)) * inch, "\n".join(lines), **below)


def _grown_above(figure: Figure, room: float) -> float:
    """Make the figure higher until there are `room` inches above its axes, which keep their size. Returns its
    height in inches."""
    width, height = figure.get_size_inches()
    top = max(ax.get_position().y1 for ax in figure.axes)
    grown = max(height, top * height + room)
    figure.set_size_inches(width, grown)
    for ax in figure.axes:
        at = ax.get_position()
        ax.set_position((at.x0, at.y0 * height / grown, at.width, at.height * height / grown))
    for text in figure.texts:
        text.set_y(text.get_position()[1] * height / grown)
    return float(grown)


def verbatim(text: str) -> str:
    """The text as matplotlib shows it with its dollar signs, which otherwise begin mathematics."""
    return text.replace("$", r"\$")


def wrapped(name: str, width: int = 34) -> str:
    """A name beside a picture, in lines of at most so many characters; no word is broken."""
    return textwrap.fill(name, width, break_long_words=False, break_on_hyphens=False)


def names_of(groups: list[Group], brief: bool = True) -> list[str]:
    """The name of each group in a picture: its label and the facts (`FACTS`) that tell it apart.

    brief   leave out the facts that most groups have in common; `unsaid` gives them for the title
    """
    facts = _facts(groups)
    usual = _usual(groups) if brief else [""] * len(FACTS)
    return [
        verbatim(_joined(group, [said for said, most in zip(own, usual) if said != most]))
        for group, own in zip(groups, facts)
    ]


def unsaid(groups: list[Group]) -> str:
    """What `names_of` leaves out of names, for the line below a picture's title; "" where nothing is."""
    left_out = ", ".join(filter(None, _usual(groups)))
    return f"{left_out} unless named otherwise" if left_out else ""


def told_apart(groups: list[Group], without: Collection[str] = ()) -> list[str]:
    """Labels, and whatever else tells groups of one picture apart.

    without   facts (`FACTS`) to leave out
    """
    return [_joined(group, facts) for group, facts in zip(groups, _facts(groups, without))]


LISTED = 20  # names of rows without one beside them that a picture has room for


def listed(names: Sequence[str]) -> str:
    """Names in a row, of many the first `LISTED`."""
    more = [f"and {len(names) - LISTED} more"] if len(names) > LISTED + 1 else []
    return ", ".join([*names[: LISTED if more else None], *more])


FACTS = ("workers", "partition", "epochs")


def _joined(group: Group, facts: list[str]) -> str:
    going = "" if group.finished else f"(unfinished, {counted(group.epochs, 'epoch')})"
    return " ".join(filter(None, [group.label, *facts, going]))


def _facts(groups: list[Group], without: Collection[str] = ()) -> list[list[str]]:
    """[groups, FACTS] the facts in words; "" for all groups where a fact does not differ. The epochs of an
    unfinished group are "", since `_joined` says them."""
    made = []
    for fact, said in (
        ("workers", [counted(group.workers, "worker") for group in groups]),
        ("partition", [group.partition for group in groups]),
        ("epochs", [counted(group.epochs, "epoch") if group.finished else "" for group in groups]),
    ):
        differ = fact not in without and len(set(filter(None, said))) > 1
        made.append(said if differ else [""] * len(groups))
    return [list(own) for own in zip(*made)]


def _usual(groups: list[Group]) -> list[str]:
    """[FACTS] for each fact, what more than half of the groups say; "" where no text has that many."""
    most = [Counter(said).most_common(1)[0] for said in zip(*_facts(groups))]
    return [said if 2 * count > len(groups) else "" for said, count in most]


Row = tuple[str, int, str, str, bool]


def row_of(group: Group) -> Row:
    """The row of a table that a group is, whatever the graph. A row is drawn alike in all pictures."""
    return (group.label, group.workers, group.partition, str(group.first.keys.get("epochs")), group.finished)


def strokes_of(groups: Iterable[Group]) -> dict[Row, dict[str, Any]]:
    """By row, its colour, line and marker, as arguments of matplotlib.

    A hash of the system's name chooses the colour, so that a system has one colour in every picture. A system
    from outside the tree takes the next colour that no other system of the picture has. Rows of one system
    are shades of its colour, from dark to light. Line and marker (a look) tell rows apart where colours
    cannot be seen. The hash chooses them too; a row whose look is taken gets the next that is free."""
    rows: dict[str, set[Row]] = {}
    own = []
    for group in groups:
        rows.setdefault(system_of(group.first.keys), set()).add(row_of(group))
        if str(group.first.keys.get("system._target_")).partition(".")[0] not in TREE:
            own.append(system_of(group.first.keys))
    colours = {name: _hash(name) % len(COLOURS) for name in rows}
    for name in sorted(set(own)):
        others = {colour for other, colour in colours.items() if other != name}
        turns = [(colours[name] + step) % len(COLOURS) for step in range(len(COLOURS))]
        colours[name] = next((colour for colour in turns if colour not in others), colours[name])
    made: dict[Row, dict[str, Any]] = {}
    ordered = {name: sorted(each, key=lambda row: [*map(natural, row)]) for name, each in rows.items()}
    places = [(at, name, row) for name in rows for at, row in enumerate(ordered[name])]
    for at, name, row in sorted(places, key=lambda place: place[:2]):
        shade = np.linspace(*SHADES, len(rows[name]))[at] if len(rows[name]) > 1 else 0.0
        colour = _mixed(COLOURS[colours[name]], shade)
        looks = (_look(_hash(name) // len(COLOURS) + at + step) for step in range(LOOKS))
        taken = [(other["linestyle"], other["marker"]) for other in made.values()]
        line, marker = min(looks, key=taken.count)
        made[row] = {"color": colour, "linestyle": line, "marker": marker}
    return made


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{SALT}{name}".encode()).digest()[:4], "big")


def _look(number: int) -> tuple[Any, str]:
    return STROKES[number % len(STROKES)], MARKERS[number % len(MARKERS)]


def _mixed(colour: str, shade: float) -> str:
    """A colour mixed with white by the share `shade`, or with black by -`shade` where that is below 0."""
    end = 1.0 if shade > 0 else 0.0
    red, green, blue = ((1 - abs(shade)) * part + abs(shade) * end for part in to_rgb(colour))
    return to_hex((red, green, blue))


def stroke(number: int) -> dict[str, Any]:
    """The colour of the palette at `number`; past its end the colours come again with another line."""
    rounds, place = divmod(number, len(COLOURS))
    return {"color": COLOURS[place], "linestyle": STROKES[rounds % len(STROKES)]}


def save(figure: Figure, path: Path, titled: bool = True, described: str = "") -> Path:
    """Write the figure in the format that the path's ending names, the same bytes whenever it is made.
    Returns the path.

    titled      whether to keep the texts of `title`
    described   what the picture shows, in words that a PNG keeps as its description
    """
    said: dict[str, str | None] = {"Software": None}
    if described:
        said["Description"] = described
    metadata = {".png": said, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}[path.suffix]
    box = None
    if not titled:
        for text in [text for text in figure.texts if text.get_gid() == TITLE]:
            text.remove()
        # The room of the title goes to the axes; where the axes have a fixed place it is cut off.
        if isinstance(engine := figure.get_layout_engine(), ConstrainedLayoutEngine):
            engine.set(rect=(0, 0, 1, 1))
        else:
            box = "tight"
    with matplotlib.rc_context({"svg.hashsalt": path.stem, "pdf.fonttype": 42}):
        figure.savefig(path, dpi=150, metadata=metadata, bbox_inches=box)
    return path
