"""Pictures as elements of a page: SVG without a size of its own, with ids that no other picture has."""

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping

import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
REFERENCE = re.compile(r"url\(#([^)]+)\)|^#(.+)$")


def element(figure: Figure, name: str, says: str, points: Mapping[str, str] | None = None) -> Markup:
    """The figure as an <svg> that fills the width it is given; the same text whenever it is made.

    name    unique on the page; ids in the picture begin with it
    says    what the picture shows, for readers who do not see it
    points  by the `gid` of an artist, the text that is shown where the pointer rests on it
    """
    written = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    root = ET.fromstring(written.getvalue())
    for parent in root.iter():
        for child in list(parent):
            # A style element of one picture would hold for the whole page.
            if child.tag in (f"{{{SVG}}}metadata", f"{{{SVG}}}style"):
                parent.remove(child)
    _rename(root, name, points or {})
    for size in ("width", "height"):
        root.attrib.pop(size, None)
    root.attrib |= {"class": "picture", "role": "img", "aria-label": says}
    ET.register_namespace("", SVG)
    ET.register_namespace("xlink", XLINK)
    return Markup(ET.tostring(root, encoding="unicode"))


def _rename(root: ET.Element, name: str, points: Mapping[str, str]) -> None:
    """Give the points their titles, put `name` before each id that something refers to, and remove all other
    ids."""
    used = {
        found[1] or found[2]
        for each in root.iter()
        for value in each.attrib.values()
        for found in REFERENCE.finditer(value)
    }

    def renamed(found: re.Match[str]) -> str:
        return f"url(#{name}-{found[1]})" if found[1] else f"#{name}-{found[2]}"

    for each in root.iter():
        own = each.attrib.pop("id", "")
        if own in points:
            title = ET.Element(f"{{{SVG}}}title")
            title.text = points[own]
            each.insert(0, title)
        if own in used:
            each.set("id", f"{name}-{own}")
        for key, value in each.attrib.items():
            each.set(key, REFERENCE.sub(renamed, value))
