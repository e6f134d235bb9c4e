"""`make size` counts every line of Python once."""

from __future__ import annotations

from tests import size


def test_every_line_is_counted_once():
    tracked = size._git("ls-files", "harness", "systems", "tests").splitlines()
    by_hand = sum(
        len((size.ROOT / path).read_text().splitlines()) for path in tracked if path.endswith(".py")
    )
    table = size.table("HEAD").set_index("lines of")["now"]
    assert by_hand == table["product"] + table["tests"] == size.lines().total()
    assert table["product"] == table["core: product without the next three"] + sum(table[list(size.OPTIONAL)])
