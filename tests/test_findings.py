"""docs/findings.md: what it states stands on the pages that it is from."""

import re

import pandas as pd

from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "findings.md").read_text()
SOURCES = ("systems/study.csv", "results.md", "systems/lean.md", "papers/capgnn.md", "../README.md")
KEPT = ("modelled_capgnn_groups",)  # experiments whose kept values stand there in two decimals
NUMBER = re.compile(r"[+-]?\d+\.\d+ ± \d+\.\d+")


def test_every_number_with_an_interval_stands_on_the_page_that_it_is_from():
    sources = "".join((ROOT / "docs" / name).read_text() for name in SOURCES)
    kept = pd.concat(pd.read_csv(ROOT / "results" / "reference" / name / "claims.csv") for name in KEPT)
    there = set(NUMBER.findall(sources))
    there |= {f"{mean:.2f} ± {half:.2f}" for mean, half in zip(kept["mean"], kept["half"])}
    found = NUMBER.findall(PAGE)
    assert len(found) > 40 and [each for each in found if each not in there] == []


def test_every_finding_has_a_command():
    findings = PAGE.split("\n## ")[1:]
    assert len(findings) == 10 and all("```sh" in each for each in findings)


def test_what_tuning_does_is_what_its_tables_say():
    text = " ".join(PAGE.partition("## 10. Tuned")[2].split())
    debian, computers = (_scores(name) for name in ("debian", "amazon-computers"))
    exact, control = (debian[name, "fixed"][0] for name in ("vanilla", "zero_halo"))
    for before, name in ((exact, "vanilla"), (control, "zero_halo")):
        assert f"({before:.1f} to {debian[name, 'tuned'][0]:.1f})" in text
    gains = [
        debian[name, "tuned"][0] - debian[name, "fixed"][0] for name, track in debian if track == "fixed"
    ]
    assert len(gains) == 20 and f"{min(gains):.1f} to {sorted(gains)[-2]:.1f} points" in text
    for name in ("sylvie", "cdfgnn", "lean"):
        score, size = debian[name, "tuned"]
        assert re.search(rf"`{name}` \({score:.1f}, {size:.0f}( MB)?\)", text)
    for name in ("sylvie", "pipegcn", "skipg", "pscgcn"):
        fixed, tuned = (computers[name, track][0] for track in ("fixed", "tuned"))
        assert re.search(rf"`{name}` (has )?{tuned:.0f} instead of {fixed:.0f}", text)


def _scores(graph: str) -> dict[tuple[str, str], tuple[float, float]]:
    """Test accuracy in %, and MB of a run, by system and track."""
    rows = pd.read_csv(ROOT / "docs" / "figures" / f"tuned-{graph}.csv")
    names = [tuple(called.split()[:2]) for called in rows.system]
    return dict(zip(names, zip(rows.test_acc_percent, rows.mb_run)))
