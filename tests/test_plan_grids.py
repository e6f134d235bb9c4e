"""Grids by their published formulas, against numbers worked out by hand."""

import csv

import pytest

from harness.core.cluster import Cluster, Device, Link
from harness.model.plan.__main__ import main
from harness.model.plan.grids import communication, grids
from tests.test_plan import SMALL, here  # noqa: F401

GRAPH = {"vertices": 100, "edges": 600, "widths": [10, 6, 4]}  # mean widths of its layers: 8 and 5


@pytest.mark.parametrize(
    "name, workers, sent, memory",
    [
        # Words of each of 16 workers: (2 * 600 + 8 * 100 * 8 + 2 * 600 + 8 * 100 * 5) / 4.
        ("CAGNET 2D", 16, 16 * 3200, (600 + 100 * 20) / 16),
        # Words of each of 8 workers: (2 * 600 + 12 * 100 * 8 + 2 * 600 + 12 * 100 * 5) / 4.
        ("CAGNET 3D", 8, 8 * 4500, 600 / 8 + 100 * 20 / 4),
        # Words of 27 workers: 2 * 100 * (2 * 16 + 4 * 10 + 2 * 10 + 4 * 6). Memory of the matrix alone.
        ("Plexus", 27, 23200, 6 * 600 / 9),
    ],
)
def test_a_grid_sends_and_holds_words_of_four_bytes_by_its_formula(name, workers, sent, memory):
    (found,) = (g for g in grids(**GRAPH, workers=workers) if g.name == f"{name} (published formula)")
    assert (found.bytes, found.memory) == (4 * sent, 4 * memory)


@pytest.mark.parametrize(
    "workers,notes",
    [
        (8, ["8 workers are no square", "", "memory of the matrix alone"]),
        (16, ["", "16 workers are no cube", "16 workers are no cube"]),
        (12, ["12 workers are no square", "12 workers are no cube", "12 workers are no cube"]),
    ],
)
def test_a_row_says_where_the_workers_make_no_such_grid(workers, notes):
    found = grids(**GRAPH, workers=workers)
    assert [each.note for each in found] == notes
    assert [each.bytes is None for each in found] == [" no " in note for note in notes]


def test_one_worker_sends_nothing():
    assert [each.bytes for each in grids(**GRAPH, workers=1)] == [0, 0, 0]


def cluster(hosts: list[int], **links: float) -> Cluster:
    devices = [Device(host=host) for host in hosts]
    return Cluster("mine", devices, **{kind: Link(gbytes_per_s=rate) for kind, rate in links.items()})


@pytest.mark.parametrize(
    "hosts,links,seconds",
    [
        ([0, 0, 0, 0], {"inside": 2}, 4 / 4 / 2),
        ([0, 0, 0, 0], {"inside": 2, "bridge": 4}, 4 / 4 / 1),  # a fourth of the bridge each
        ([0, 0, 1, 1], {"inside": 2, "between": 3}, 4 / 4 / 1.5),  # two workers to a host's network
    ],
)
def test_communication_is_a_workers_bytes_over_its_share_of_the_narrowest_link(hosts, links, seconds):
    assert communication(4e9, cluster(hosts, **links), 4) == pytest.approx(seconds)


def test_a_plan_has_them_beside_the_systems_once_for_each_graph(here, tmp_path, capsys):  # noqa: F811
    small = [word for word in SMALL if not word.startswith(("workers", "epochs"))]
    words = ["system=zero_halo,local", *small, "workers=4", "epochs=1", "cluster=hosts/10g", *here, "--grids"]
    assert main([*words, "--csv", str(tmp_path / "plan.csv")]) == 0
    with open(tmp_path / "plan.csv") as file:
        rows = [row for row in csv.DictReader(file) if "formula" in row["system"]]
    assert [row["note"] for row in rows] == ["", *["4 workers are no cube"] * 2]
    assert float(rows[0]["bytes_least"]) > 0 and float(rows[0]["communication_s"]) > 0
    assert rows[1]["bytes_least"] == rows[1]["communication_s"] == ""
    out = capsys.readouterr().out
    assert out.count("CAGNET 2D (published formula)") == 1 and "4 workers are no cube" in out
