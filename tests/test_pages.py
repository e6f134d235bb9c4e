"""Every system has a page, and its knobs and decisions are those of the code."""

import re

import pytest

from tests import pages, traces
from tests.kept import with_tables

NAMES = sorted(p.stem for p in pages.CONF.glob("*.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_up_to_date(name):
    path = pages.PAGES / f"{name}.md"
    if not path.exists():
        assert "\n## Decisions\n" in pages.first(name), "python -m tests.pages can write one"
        return
    page = path.read_text()
    assert page == pages.up_to_date(page, name), "run python -m tests.pages"
    assert {"Knobs", "Decisions"} <= set(re.findall(r"^## (.*)$", page, re.M))
    for picture in re.findall(r"\]\(([^)]+\.png)\)", page):
        assert (pages.PAGES / picture).exists(), f"{picture} is not there"


def test_every_system_is_listed():
    index = pages.PAGES.with_suffix(".md").read_text()
    assert index == with_tables(index, pages.COMMAND, pages.listed()), "run python -m tests.pages"
    assert all(f"| [`{name}`]" in index for name in NAMES)


def test_a_page_is_made_of_the_docstring_and_yaml_of_a_system_that_has_none(tmp_path):
    for folder in ("conf", "pages", "systems"):
        (tmp_path / folder).mkdir()
    (tmp_path / "conf" / "mine.yaml").write_text("_target_: systems.mine.Mine\nperiod: 5  # epochs\n")
    text = '"""Mine: rows are kept.\n\nFor long.\n\nDecisions: none.\n"""\n'
    (tmp_path / "systems" / "mine.py").write_text(text)
    folders = tmp_path / "conf", tmp_path / "pages", tmp_path
    pages.main(*folders)
    page = (tmp_path / "pages" / "mine.md").read_text()
    assert page.startswith("# mine: rows are kept\n\nFor long.\n\n## Knobs\n\n")
    assert '\n--8<-- "conf/system/mine.yaml"\n' in page
    assert "`systems/mine.py`:\n\n::: systems.mine\n" in page.split("## Decisions")[1]
    pages.main(*folders)
    (tmp_path / "pages" / "mine.md").write_text(page.replace("For long.", "By hand."))
    pages.main(*folders)
    assert (tmp_path / "pages" / "mine.md").read_text() == page.replace("For long.", "By hand.")


def recipe(name: str) -> str:
    """The page's own Python, which reads traces in `results`."""
    return re.search(r"^```python\n(.*?)^```", (pages.PAGES / f"{name}.md").read_text(), re.M | re.S)[1]


def test_the_recipe_of_sancus_prints_shares_of_broadcasts(tmp_path, monkeypatch, capsys):
    for number, (norm, flags) in enumerate({"relative": (1, 1, 1, 1), "mean": (1, 0, 1, 0)}.items()):
        target = "systems.sancus.Sancus"
        composed = traces.config(gpus=1, epochs=4, system__norm=norm, system___target_=target)
        metrics = [{(1, "active"): float(flag), (0, "active"): 0.0} for flag in flags]
        traces.measured(tmp_path / "results" / "cora" / f"sancus-{number}", metrics, composed)
    traces.measured(tmp_path / "results" / "cora" / "vanilla-1", [{}], traces.config(gpus=1, epochs=1))
    monkeypatch.chdir(tmp_path)
    exec(recipe("sancus"), {})
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["cora: sancus norm=mean: 50%", "cora: sancus norm=relative: 100%"]


def test_the_recipe_of_cdfgnn_prints_shares_quiet_epochs_bytes_and_accuracy(tmp_path, monkeypatch, capsys):
    counts = {"forward": {"sent": 30.0, "zero": 0.0, "possible": 40.0},
              "backward": {"sent": 4.0, "zero": 20.0, "possible": 40.0}}  # fmt: skip
    epoch = {(layer, f"{name}_{way}"): rows
             for layer in (0, 1) for way in counts for name, rows in counts[way].items()}  # fmt: skip
    quiet = {**epoch, (0, "sent_forward"): 1.0}
    for seed, metrics in enumerate(([epoch, quiet, quiet], [epoch, epoch, quiet])):
        composed = traces.config(gpus=1, epochs=3, seed=seed, model__dropout=0.5, system__cache=True,
                                 system__epsilon=0.01, system___target_="systems.cdfgnn.Cdfgnn")  # fmt: skip
        traces.measured(tmp_path / "results" / "cora" / f"cdfgnn-{seed}", metrics, composed)
    monkeypatch.chdir(tmp_path)
    exec(recipe("cdfgnn"), {})
    # Of layer 0 forward 75 % are sent in three of six epochs and 2.5 % in the others. Validation is level, so
    # the first epoch's test accuracy stands for the best.
    printed = capsys.readouterr().out
    assert printed == "| cora | 0.5 | 0.01 | 39 | 75 | 10 | 10 | 50 | 2 1 | 0.0 | 0.0 | 2.0 |\n"
