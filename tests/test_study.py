"""The study's page: made of runs alone, started where they are lacking, and what it is asked for is refused
in one sentence.
"""

import pandas as pd
import pytest

from harness.base.errors import InputError
from harness.base.places import OWN_CONFIG
from harness.base.words import key_values
from harness.core.context import RunFacts
from harness.papers.study import __main__ as study
from harness.papers.study.parts import read_table
from harness.run import runner
from harness.run.config import make_system
from harness.run.runner import Places
from tests import systems, traces
from tests.launching import ROOT

TINY = "twin/flickr dataset.scale=0.005 dataset.split=random"


def parts_in(page) -> list[tuple[str, ...]]:
    """What is kept beside a page, row by row: graph, kind of rows, part and system."""
    made = read_table(page.with_name("study.csv"))
    return list(made[["graph", "kind", "part", "system"]].itertuples(index=False, name=None))


@pytest.fixture
def started(place, monkeypatch) -> list[str]:
    """The sweeps that the study starts, each on two workers."""
    sweeps, expand = [], runner.expand

    def short(sweep: str) -> str:
        return sweep.replace("gpus=4", "gpus=2 kernel=numba threads=1")

    def start(sweep, places, made=None):
        sweeps.append(short(sweep))
        place.sweep(sweeps[-1], places)

    monkeypatch.setattr(runner, "start", start)
    monkeypatch.setattr(runner, "expand", lambda sweep: expand(short(sweep)))
    return sweeps


def test_the_page_is_the_table_of_its_runs(started, monkeypatch, tmp_path, capsys, refused):
    monkeypatch.setattr(
        study,
        "GRAPHS",
        {"tiny": study.Study(TINY), "other": study.Study(TINY.replace("random", "low_label"))},
    )
    monkeypatch.setattr(runner, "is_here", lambda graph, folder: True)
    two = {row: study.SYSTEMS[row] for row in ("vanilla", "cdfgnn")}
    monkeypatch.setattr(study, "ROWS", {**study.ROWS, study.ONE: two})
    page, some = tmp_path / "page" / "README.md", tmp_path / "some" / "README.md"
    arguments = ["--graphs", "tiny", "--systems", "vanilla", "cdfgnn", "--kinds", "one setting",
                 "--partitions", "random", "--seeds", "1", "--epochs", "2", "--out", str(page),
                 "--results", str(tmp_path / "results"), "--cache", str(tmp_path / "cache")]  # fmt: skip
    assert study.main([*arguments, "--only-there"]) == 2 and not page.exists()
    of_one = [*arguments[:2], "--systems", "cdfgnn", *arguments[5:]]
    assert study.main([*of_one, "--out", str(some)]) == 0
    assert "- random: Made with `--seeds 1 --epochs 2`." in some.read_text()
    assert parts_in(some) == [("tiny", "one setting", "random: cdfgnn", "cdfgnn")]
    assert study.main([*arguments, "--only-there"]) == 0
    assert "Not made when this was written: vanilla." in page.read_text()
    assert study.main(arguments) == 0 and "Not made when" not in page.read_text()
    assert len(started) == 2 and "partition=ebv" in started[0] and "partition=random" in started[1]
    text, table = page.read_text(), page.with_name("study.csv").read_text()
    assert "\nNot made yet: other.\n\n## tiny\n\n### One setting for all: 200 epochs, 3 seeds\n\n**" in text
    assert "\n| system | random: acc % | - exact | MB | " in text
    assert "## other" not in text and "papers’ settings:" not in text
    made = read_table(page.with_name("study.csv"))
    rows = made.to_dict("records")
    assert [row["system"] for row in rows] == ["vanilla", "cdfgnn"]
    assert rows[0]["said"].startswith("Made with") and "are summed over workers" in rows[0]["notes"]
    for row in rows:
        mb = row["MB per epoch"].removesuffix(" *")
        assert float(mb) > 0 and f"\n| {row['system']} | " in text and f" | {mb}" in text
    assert study.main(arguments) == 0 and len(started) == 2 and page.read_text() == text
    assert page.with_name("study.csv").read_text() == table
    # Some of the rows are a part below that of all, which stays as it is, and stays where all are made anew.
    some.with_name("study.csv").write_text(table)
    assert study.main([*of_one, "--out", str(some)]) == 0
    assert some.read_text().startswith(f"{text}\n") and some.read_text().count("| cdfgnn ") == 2
    both = some.read_text()
    assert study.main([*arguments, "--out", str(some)]) == 0 and some.read_text() == both
    # What is of another graph, kind or partition stays, in the order of the graphs.
    study_of_other = ["--graphs", "other", *arguments[2:]]
    assert study.main([*study_of_other, "--only-there"]) == 0 and page.read_text() == text
    places = [("other", "papers' settings"), ("tiny", "papers' settings"), ("tiny", "one setting")]
    mine = [
        {"graph": graph, "kind": kind, "part": "metis", "said": "of another machine"}
        for graph, kind in places
    ]
    pd.concat([pd.DataFrame(mine), made]).to_csv(page.with_name("study.csv"), index=False)
    assert study.main(arguments) == 0
    assert parts_in(page) == [
        ("tiny", "one setting", "metis", ""),
        ("tiny", "one setting", "random", "vanilla"),
        ("tiny", "one setting", "random", "cdfgnn"),
        ("tiny", "papers' settings", "metis", ""),
        ("other", "papers' settings", "metis", ""),
    ]
    assert page.read_text().count("- metis: of another machine") == 3
    # Where nothing of a partition has finished, its table of before stays.
    whole = page.read_text()
    nothing = [*arguments, "--partitions", "metis", "--only-there", "--systems", "vanilla"]
    assert study.main(nothing) == 0 and page.read_text() == whole
    monkeypatch.setattr(study, "ROWS", {**study.ROWS, study.ONE: {"vanilla": two["vanilla"]}})
    assert study.main(nothing) == 0 and page.read_text() == whole
    capsys.readouterr()
    refused(study.main, ["--systems", "vanila"], 'system="vanila" is not known')
    refused(study.main, [*arguments, "--partitions", "metiss"], 'did you mean "metis"?')


def test_rows_at_their_best_have_every_exact_saving_that_the_system_can_take(tmp_path):
    """And stand there once more with coded weights, where it can take these."""
    rows, places = study.ROWS[study.BEST], Places(tmp_path, tmp_path, tmp_path)
    made = {}
    for name, how in rows.items():
        sweep = study.sweep_of("dblp", how, study.Extent(seeds="1", epochs=10, partitions="random"))
        (made[name],) = runner.composed(runner.expand(sweep), places)
    for name, run in made.items():
        plain, _, coded = name.partition(", ")
        asked, traits = run.settings, run.system.traits()
        assert getattr(run.system, "features", "once") == "once"
        assert (asked.features_wire or traits.features_wire) == "auto", name
        can = not run.system.refuses.needed_rows
        assert (asked.rows or traits.rows) == ("needed" if can else "all"), name
        codes = type(run.combine or traits.combine).__name__ == "Quantised"
        assert codes == bool(coded), name
        if not coded and f"{plain}, coded weights" not in made:
            facts = RunFacts("gcn", True, 2, True, False, combine="quantised")
            assert "combine=quantised cannot be" in (made[plain].system.supports(facts) or ""), name
    known = {type(run.system) for run in made.values()}
    batches = {"distdgl", "bytegnn", "gas", "cluster_gcn", "graphsaint", "llcg", "llcg-equal-steps"}
    for name in study.SYSTEMS.keys() - batches:
        block = systems.block(key_values(study.SYSTEMS[name].split())["system"])
        assert type(make_system(block)) in known, f"{name} has no row at its best"


def test_the_runs_of_a_sweep_are_composed_in_its_order_or_refused(tmp_path):
    sweep = "system=sancus partition=random dataset=cora gpus=1,4 seed=1,2,3 optimiser.lr=0.01,0.1"
    places = Places(tmp_path, tmp_path, tmp_path)
    together = runner.composed(runner.expand(sweep), places)
    assert len({run.fingerprint for run in together}) == len(together) == 12
    both = runner.composed(runner.expand("system=vanilla,sancus seed=1,2"), places)
    assert [run.system_name for run in both] == ["vanilla", "vanilla", "sancus", "sancus"]
    with pytest.raises(InputError, match="not a whole number"):
        runner.composed(runner.expand("system=vanilla seed=1,2.5"), places)
    with pytest.raises(InputError, match='did you mean "sancus"'):
        runner.composed(runner.expand("system=sancuss seed=1,2"), places)


def test_a_rows_sweep_has_larger_batches_where_most_vertices_train_and_fewer_epochs_at_equal_steps():
    def sweep(graph: str, row: str) -> str:
        return study.sweep_of(graph, study.SYSTEMS[row], study.Extent(epochs=200))

    for graph, size in (("cora", 32), ("tolokers", 1000), ("coauthor-physics", 1000)):
        asked = sweep(graph, "distdgl")
        assert asked.count("system.batch=") == 1 and f" system.batch={size} " in asked
    asked = sweep("cora", "llcg-equal-steps")
    assert asked.count("epochs=") == 1 and " epochs=40 " in asked


def test_a_row_has_the_epochs_and_seeds_of_the_heading():
    extent = study.Extent(seeds="1,2", epochs=7, partitions="metis")
    row = "system=vanilla epochs=50 seed=3 workers=2 partition=random"
    assert study.sweep_of("cora", row, extent) == (
        "system=vanilla partition=random dataset=cora gpus=4 epochs=7 seed=1,2 evaluate.every=10"
    )


def test_a_row_of_several_steps_says_so(tmp_path):
    path = traces.finished(tmp_path / "run", ran_on={"steps": 5})
    (shown,) = study.tables_of({"metis": {path: "llcg"}}, {}, []).values()
    assert shown["system"][0] == "llcg (5 steps per epoch)" and "unless a row says" in shown["notes"][0]


def test_every_row_at_a_papers_setting_has_exact_training_and_the_control_at_the_same():
    settings = {}
    for row, asked in study.AT_PAPERS.items():
        model = tuple(word for word in asked.split() if word.startswith(("model", "optimiser")))
        settings.setdefault(model, set()).add(asked.split()[0].removeprefix("system="))
    assert len(settings) == 5 and all({"vanilla", "zero_halo"} < systems for systems in settings.values())


def test_all_at_one_setting_differ_in_nothing_but_the_system():
    for asked in study.SYSTEMS.values():
        words = [word for word in asked.split() if word != "partition=ebv"]  # of a vertex-cut, which it needs
        assert all(word.startswith(("system", "cluster", "epochs")) for word in words)
        assert "features=refetch" not in asked or asked == study.SYSTEMS["vanilla, refetch"]


def test_a_row_of_a_system_from_outside_the_tree(place, started, monkeypatch, tmp_path, capsys, refused):
    """Its yaml is in a folder of one's own, its module on the Python path."""
    monkeypatch.syspath_prepend(place.folder / "modules")
    monkeypatch.setattr(study, "GRAPHS", {"tiny": study.Study(TINY)})
    page = tmp_path / "page.md"
    monkeypatch.setenv(OWN_CONFIG, str(place.folder / "conf"))
    arguments = ["--kinds", "one setting", "--epochs", "2",
                 "--seeds", "1", "--partitions", "random", "--out", str(page), "--systems", "mine",
                 "--results", str(tmp_path / "results"), "--cache", str(tmp_path / "cache")]  # fmt: skip
    assert study.main([*arguments, "--row", "mine=system=trouble system.epoch=7"]) == 0, capsys.readouterr()
    assert "| mine " in page.read_text() and len(started) == 1
    assert "partition=random" in started[0] and "system.epoch=7" in started[0]
    for row, said in (
        ("mine", "names no system"),
        ("vanilla=system=trouble", "has the name of another row"),
        ("mine=system=truble", 'did you mean "trouble"?'),
    ):
        refused(study.main, [*arguments, "--row", row], said)


def test_what_is_no_place_for_a_study_is_refused_before_anything_runs(tmp_path, monkeypatch, refused):
    monkeypatch.setattr(study, "gather", lambda *given: pytest.fail("nothing is to be run"))
    page, folder = tmp_path / "page.md", tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "study.csv").write_text("a,b\n1,2\n")
    for out, said in (
        (page, "study.csv holds no tables of a study: move it away, or give another --out"),
        (folder, f"out={folder} is no place for a file"),
        (tmp_path / "study.csv" / "page.md", "page.md cannot be written: File exists; give another --out"),
    ):
        refused(study.main, ["--out", str(out)], said)


def test_a_folder_without_the_graphs_is_named(tmp_path, capsys):
    words = ["--only-there", "--graphs", "cora", "--out", str(tmp_path / "page.md")]
    assert study.main([*words, "--data-dir", str(tmp_path)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"error: --data-dir {tmp_path} holds none of these graphs; give another" in said


def test_the_page_in_the_tree_is_what_its_table_makes():
    page = ROOT / "docs" / "systems" / "README.md"
    assert page.read_text() == study.page(read_table(page.with_name("study.csv")))
