"""`halobench report html`: one page in one file, as text and in a browser."""

import base64
import os
import re
import shutil
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from harness import cli
from harness.cli.page.__main__ import page
from harness.run import repeat_command, runner
from tests import traces
from tests.reported import read_once

HOSTILE = "<b>a & $b$</b>"


def system(folder, name, role="", label=None, dataset="citeseer", seeds=(1, 2, 3), **measured):
    for seed in seeds:
        composed = traces.config(
            system___target_=f"systems.{name}.{name.capitalize()}", seed=seed, label=label
        )
        composed["dataset"]["name"] = dataset
        composed["system"].pop("features")
        how = {key: value[seed - 1] if isinstance(value, tuple) else value for key, value in measured.items()}
        traces.finished(folder / dataset / f"{name}{seed}", composed, ran_on={"role": role}, **how)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Exact training, the control and two systems on one graph, one of them with a name that is markup; two
    systems with one seed on another."""
    folder = tmp_path_factory.mktemp("results")
    system(folder, "vanilla", "reference", target=(0.8, 0.82, 0.81), size=1000)
    system(folder, "zero_halo", "control", target=(0.5, 0.52, 0.49), size=1)
    system(folder, "bns", target=(0.8, 0.81, 0.82), size=100)
    system(folder, "local", label=HOSTILE, target=(0.6, 0.7, 0.65), size=10, speed=0.5)
    system(folder, "vanilla", "reference", dataset="pubmed", seeds=(1,))
    system(folder, "bns", dataset="pubmed", seeds=(1,), size=10)
    with read_once():
        yield folder


@pytest.fixture(scope="module")
def path(results, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    (folder / "figures").mkdir()
    Figure(figsize=(1, 1)).savefig(folder / "figures" / "drawn.png")
    words = ["--out", str(folder / "page.html"), "--figures", str(folder / "figures")]
    assert cli.main(["report", "html", str(results), *words]) == 0
    return folder / "page.html"


class Elements(HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def elements(path):
    return Elements(path.read_text())


def test_the_page_needs_nothing_but_itself(path, elements):
    for tag, attributes in elements.tags:
        assert tag not in ("iframe", "object", "embed", "base") and not (
            tag == "script" and "src" in attributes
        )
        for name in ("href", "src", "xlink:href"):
            if name in attributes:
                assert attributes[name].startswith(("#", "data:")), (tag, attributes)
    text = path.read_text()
    assert not re.search(r"url\((?!#)|@import|fetch\(|XMLHttpRequest", text)
    assert "default-src 'none'" in text


def test_the_command_for_the_numbers_in_full_reads_the_runs_of_the_page_alone(elements, results):
    assert f"halobench report table {results} --format csv" in elements.text


def test_ids_are_unique_and_links_lead_to_them(elements):
    ids = Counter(attributes["id"] for _, attributes in elements.tags if "id" in attributes)
    assert set(ids.values()) == {1}
    links = {a["href"][1:] for tag, a in elements.tags if tag == "a"}
    assert links <= set(ids) and len(links) > 8
    inside = {a["xlink:href"][1:] for tag, a in elements.tags if tag == "use"}
    assert inside <= set(ids)


@pytest.mark.nightly(20)
def test_the_page_says_the_same_whenever_it_is_made(results):
    one, other = (page([str(results / "pubmed")], "made") for _ in range(2))
    assert one == other


def test_a_name_that_is_markup_stands_as_it_is(path, elements):
    assert HOSTILE not in path.read_text()
    assert any(HOSTILE in text for text in elements.text)
    assert "$b$" in " ".join(elements.text) and r"\$" not in path.read_text().split("<script>")[0]


def test_every_row_has_its_command_config_and_environment(elements, results):
    said = "\n".join(elements.text)
    # `_target_` of the control is none of the tree's here.
    assert said.count("The command that makes its runs:") == 5
    assert "No command of this tree makes its runs: system._target_=systems.zero_halo.Zero_halo" in said
    assert re.search(r"halobench run -m system=bns dataset=citeseer [^\n]*seed=1,2,3", said)
    for run in results.glob("*/*"):
        assert str(run) in said
    assert "processor" in said and '"Test CPU"' in said
    assert f"halobench report html {results}" in said


def test_figures_stand_in_the_page_itself(path, elements, tmp_path, results, refused):
    (image,) = [attributes for tag, attributes in elements.tags if tag == "img"]
    drawn = (path.parent / "figures" / "drawn.png").read_bytes()
    assert base64.b64decode(image["src"].removeprefix("data:image/png;base64,")) == drawn
    assert "drawn" in image["alt"]
    words = ["--out", str(tmp_path / "page.html"), "--figures", str(tmp_path)]
    refused(cli.main, ["report", "html", str(results), *words], "holds no PNG file")


def test_the_answer_stands_first(elements):
    said = "".join(elements.text)
    answer = said.index("Take bns to send the fewest bytes")
    assert said.index("The answer") < answer
    assert "one seed has no interval" in said and "published" not in said


def test_what_cannot_be_used_is_one_sentence(tmp_path, refused, results):
    refused(cli.main, ["report", "html", str(tmp_path / "none")], "does not exist")
    for out in (tmp_path, tmp_path / "none" / "page.html"):
        words = ["report", "html", str(results), "--out", str(out)]
        refused(cli.main, words, f"out={out} is no place for a file: give ")


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="module")
def chromium():
    """A headless browser; a skip that says why where there is none, or a failure where HALOBENCH_MUST_HAVE
    asks for one.
    """
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    lacking = "" if found else f"none of {', '.join(BROWSERS)} is installed"
    try:
        import axe_playwright_python.sync_playwright  # noqa: F401
        from playwright.sync_api import sync_playwright
    except ImportError:
        lacking = lacking or "playwright or axe-playwright-python is not installed"
    if lacking:
        assert "browser" not in os.environ.get("HALOBENCH_MUST_HAVE", ""), lacking
        pytest.skip(lacking)
    with sync_playwright() as playwright:
        # Tests may run as root, whom the sandbox refuses; the pages are our own.
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"], timeout=120_000)
        yield browser
        browser.close()


@pytest.fixture
def shown(chromium, path):
    """The page in the browser, at any width; afterwards, that nothing went wrong there."""
    opened, wrong = [], []

    def show(width=1280, scheme="light"):
        found = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        found.on("console", lambda message: wrong.append(message.text))
        found.on("pageerror", lambda error: wrong.append(str(error)))
        found.on("request", lambda asked: wrong.append(asked.url) if asked.url[:4] == "http" else None)
        found.goto(path.as_uri())
        opened.append(found)
        return found

    yield show
    for each in opened:
        each.close()
    assert not wrong


OPEN_ALL = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"


@pytest.mark.parametrize("width", [360, 1920])
def test_nothing_is_wider_than_the_window(shown, width):
    found = shown(width)
    found.evaluate(OPEN_ALL)
    assert found.evaluate("document.documentElement.scrollWidth") <= width
    pictures = found.locator("#answer svg").all()
    assert pictures
    for picture in pictures:
        assert 250 < picture.bounding_box()["width"] <= width


def test_axe_finds_nothing(shown):
    from axe_playwright_python.sync_playwright import Axe

    for scheme in ("light", "dark"):
        found = shown(scheme=scheme)
        found.evaluate(OPEN_ALL)
        result = Axe().run(found)
        assert result.violations_count == 0, result.generate_report()
        assert len(result.response["passes"]) > 15
        ground = found.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(255, 255, 255)") == (scheme == "light")


SORT_ALL = """() => [...document.querySelectorAll("table")].map((table) => {
  const rows = () => [...table.tBodies[0].rows].map((row) => row.textContent);
  const before = rows().sort().join();
  const sorted = [...table.querySelectorAll("th")].map((heading, place) => [0, 1].map(() => {
    heading.firstElementChild.click();
    return [
      heading.firstElementChild.dataset.kind,
      heading.getAttribute("aria-sort"),
      table.querySelectorAll("th[aria-sort]").length,
      [...table.tBodies[0].rows].map((row) => row.cells[place].textContent.trim()),
    ];
  })).flat();
  return { same: rows().sort().join() === before, sorted };
})"""


def test_every_heading_sorts_its_column(shown):
    tables = shown().evaluate(SORT_ALL)
    assert len(tables) >= 2
    for table in tables:
        assert table["same"], "no row is lost, and none doubled"
        assert {way for _, way, _, _ in table["sorted"]} == {"ascending", "descending"}
        for kind, way, marked, values in table["sorted"]:
            assert marked == 1
            known = [value for value in values if value and value != "-"]
            assert values[: len(known)] == known, "what has no value stands at the end"
            if kind == "number":
                known = [float(value.split()[0]) for value in known]
            elif not all(re.fullmatch(r"[a-z_]*", value) for value in known):
                continue  # the order of words with signs and digits is the browser's
            assert known == sorted(known, reverse=way == "descending")


def test_every_link_opens_what_it_leads_to(shown):
    found = shown()
    for link in found.locator("a").all():
        target = link.get_attribute("href")
        found.evaluate("(to) => { location.hash = ''; location.hash = to; }", target)
        found.wait_for_function("(to) => document.querySelector(to).checkVisibility()", arg=target)


def test_the_page_can_be_used_with_the_keyboard(shown):
    found = shown()
    found.keyboard.press("Tab")
    assert found.evaluate("document.activeElement.textContent") == "Skip to the answer"
    button = found.locator("#graph1-part1-table th button").first
    button.focus()
    assert button.evaluate("(each) => getComputedStyle(each).outlineStyle") != "none"
    found.keyboard.press("Enter")
    assert found.locator("#graph1-part1-table th[aria-sort=ascending]").count() == 1


def test_the_command_of_ones_own_system_is_one_that_can_be_typed(tmp_path, monkeypatch):
    """Its class is not imported for the page, so nobody knows whether its workers meet where they save."""
    assert cli.main(["new", "system", "my_wish", "--out", str(tmp_path)]) == 0
    monkeypatch.setenv("HALOBENCH_CONFIG_DIR", str(tmp_path / "conf"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    (plain,) = runner.composed([["dataset=cora", "workers=2"]])
    block = {"_target_": "my_wish.MyWish"}
    typed = repeat_command.command([{**plain.composed, "system": block}], Path("mine"))
    began, _, rest = typed.partition(" halobench run ")
    assert began == f"PYTHONPATH={tmp_path}" and "+" not in rest and "checkpoint_every" not in rest
    assert rest.endswith("results=mine") and f"--config-dir {tmp_path}/conf system=my_wish" in rest


@pytest.mark.parametrize(
    "words",
    [
        "system=cdfgnn dataset=dblp dataset.split=low_label partition.hosts=2 workers=2 epochs=7",
        "system=capgnn cluster=capgnn/x4 dataset=twin/reddit dataset.scale=0.02 workers=4 label=a_b",
        "system=sancus/official dataset=npz dataset.path=a/b-c.npz model=sage optimiser.lr=1e-05"
        " partition=random partition.seed=3 schedule=cosine score=macro_f1",
    ],
)
def test_a_runs_command_is_found_from_its_config(words):
    (run,) = runner.composed([words.split()])
    found = repeat_command.words(run.composed)
    (made,) = runner.composed([found])
    assert made.fingerprint == run.fingerprint
    assert len(found) <= len(words.split()) + 2
