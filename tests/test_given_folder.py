"""A run folder, or a yaml, that came from somebody else: nothing outside is written, removed or told."""

import copy
import time
from functools import cache, reduce
from pathlib import Path

import pandas as pd
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.base import disk, tables, yaml_text
from harness.base.errors import InputError
from harness.core.checkpoint import Checkpoints
from harness.model.replay.settings import cluster_of
from harness.papers.claims import experiment
from harness.results import files, kinds, writer
from harness.results.reader import Trace
from harness.results.schema import LOCK
from harness.run import config, extend, overrides, prepare, runner
from tests import systems, traces

BOMB = "a: &a [x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi")
)
WRONG = {
    "means more than 20000 values": BOMB,
    "nested too deep": "a: " + "[" * 200 + "]" * 200,
    "nested too  deep": "".join(f"x{n}: &x{n} [{f'*x{n - 1}' if n else 1}]\n" for n in range(60)),
    r"an alias, \*a: give": "a: &a [*a]",
    "larger than 1048576 bytes": "a: " + "y" * (1 << 20),
    "larger than  1048576 bytes": "#  " + "é" * 600_000 + "\na: 1\n",
    "a control character": 'a: "\\x1b[31m"',
    "a number of 400 digits or more, 59:59": "a: " + ":".join(["59"] * 3000),
    "a number of 400 digits or more, 0xff": "a: [{b: 0x" + "f" * 9000 + "}]",
    "a number of 400 digits or more, -99": "a: -" + "9" * 9000,
}


@pytest.fixture
def mine(tmp_path):
    """A file and a folder that are none of a run's; they are unchanged at the end."""
    (tmp_path / "mine" / "epoch-000001").mkdir(parents=True)
    names = ("mine/notes", "mine/latest", "mine/epoch-000001/work")
    for name in names:
        (tmp_path / name).write_text("mine")
    yield tmp_path / "mine"
    assert [(tmp_path / name).read_text() for name in names] == ["mine"] * 3
    assert len([path for path in (tmp_path / "mine").rglob("*") if path.is_file()]) == 3


@cache
def composed(*words):
    return systems.asked("dataset=twin/flickr", *words)


def stored(folder: Path, **changes) -> Path:
    """The folder of a run whose config somebody has changed."""
    folder.mkdir(parents=True)
    files.write_yaml_atomic(folder / "config.yaml", yaml.safe_dump({**composed().composed, **changes}))
    return folder


# -- links --


def test_what_is_written_replaces_a_link_and_not_what_it_points_to(tmp_path, mine):
    for name in ("a.json", "a.json.part", "b.yaml.part", "stream/epochs-worker0-attempt0.arrow"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(mine / "notes")
    files.write_json_atomic(tmp_path / "a.json", {"x": 1})
    files.write_yaml_atomic(tmp_path / "b.yaml", "x: 1")
    writer.TraceWriter(tmp_path, 0, 0).close()
    assert files.read_json(tmp_path / "a.json") == {"x": 1} and not (tmp_path / "a.json").is_symlink()
    assert files.read_yaml_text(tmp_path / "b.yaml").startswith("x: 1")
    assert not any(path.is_symlink() for path in tmp_path.rglob("*")) and not list(tmp_path.glob("*.part"))


def test_a_link_that_comes_back_at_once_is_not_followed_either(tmp_path, mine, monkeypatch):
    (tmp_path / "a").symlink_to(mine / "notes")
    monkeypatch.setattr(Path, "unlink", lambda path, missing_ok=False: None)
    with pytest.raises(FileExistsError):
        disk.create(tmp_path / "a")


def test_a_link_is_removed_and_what_it_points_to_is_not(tmp_path, mine):
    (tmp_path / "checkpoints").symlink_to(mine)
    Checkpoints(tmp_path / "checkpoints", 0, None).clear()
    assert not (tmp_path / "checkpoints").is_symlink()


def test_what_ends_in_an_error_leaves_what_was_there(tmp_path):
    (tmp_path / "a").write_text("before")
    with pytest.raises(ZeroDivisionError), disk.replacing(tmp_path / "a", "w") as file:
        file.write(str(1 / 0))
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]


def test_a_run_folder_with_a_link_is_not_taken(tmp_path, mine):
    """Neither one that a run was being prepared in, nor by a start that goes on."""
    run = composed(f"run_dir={tmp_path / 'run'}")
    parts = ("environment.json.part", "shards.json.part", "config.yaml.part")
    for name in (*parts, "checkpoints", "stream", LOCK, "checkpoints/epoch-000001"):
        link = run.directory / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(mine if "." not in name else mine / "notes")
        refusal = pytest.raises(InputError, match=f"{name} is a link, which no run makes: remove it")
        with refusal, prepare.claimed(run):
            pass
        link.unlink()


# -- values of its config --


@pytest.mark.parametrize("changes", [
    {"label": "${oc.env:HOME}"}, {"dataset": {"name": "${oc.env:HOME}", "source": "twin"}},
], ids=str)  # fmt: skip
def test_no_interpolation_of_a_stored_config_is_followed(tmp_path, changes):
    folder = stored(tmp_path / "run", **changes)
    for read in (config.load, lambda folder: Trace(folder).config):
        with pytest.raises(InputError, match=r"holds an interpolation, \$\{oc.env:HOME\}"):
            read(folder)


def test_no_interpolation_of_a_cluster_is_followed(tmp_path):
    text = (Path(runner.CONF) / "cluster" / "l4.yaml").read_text()
    (tmp_path / "c.yaml").write_text(text.replace("name: l4", "name: ${oc.env:HOME}"))
    with pytest.raises(InputError, match=r"cluster.name=\$\{oc.env:HOME\} holds an interpolation: give what"):
        cluster_of(str(tmp_path / "c.yaml"))


def test_an_extended_run_uses_no_folder_that_only_its_config_names(tmp_path):
    run = stored(tmp_path / "results" / "graph" / "run", cache=str(tmp_path / "elsewhere"))
    with pytest.raises(InputError, match=r"config.yaml names cache=.*elsewhere: add cache="):
        extend.longer(run, 300)
    with pytest.raises(InputError, match="it kept no checkpoint"):
        extend.longer(run, 300, cache=str(tmp_path / "elsewhere"))


@pytest.mark.parametrize("key, name", [("cache", "cache"), ("data_dir", "data")])
def test_an_extended_run_uses_what_lies_in_its_folder_of_results_under_the_usual_name(tmp_path, key, name):
    """Where the run stands as this program places runs; else the folder above may be anything, as a home."""
    results = tmp_path / "results"
    inside = stored(results / "twin-flickr" / "other", **{key: str(results / name)})
    with pytest.raises(InputError, match="it kept no checkpoint"):
        extend.longer(inside, 300)
    for where, named in (("twin-flickr/more", ".ssh"), ("fetched/run", name), ("fetched/more", "fetched/x")):
        run = stored(results / where, **{key: str(results / named)})
        with pytest.raises(InputError, match=f"config.yaml names {key}=.*{named}: add"):
            extend.longer(run, 300)


def test_an_extended_run_goes_beside_the_one_that_was_given(tmp_path):
    """Wherever its config says that it stands, and not two folders above, as in a folder of results."""
    elsewhere = {"results": str(tmp_path / "elsewhere"), "run_dir": str(tmp_path / "elsewhere" / "run")}
    for name, said in (("moved", elsewhere), ("run", {})):
        run = stored(tmp_path / "fetched" / name, **said)
        (beside := run.with_name(f"{name}-300epochs")).mkdir()
        assert extend.longer(run, 300).directory == beside
    (asked := composed("epochs=300", f"results={tmp_path / 'results'}").directory).mkdir(parents=True)
    for name in ("moved", "run"):
        run = tmp_path / "fetched" / name
        assert extend.longer(run, 300, results=str(tmp_path / "results")).directory == asked
    (tmp_path / "there").mkdir()
    assert extend.longer(run, 300, run_dir=str(tmp_path / "there")).directory == tmp_path / "there"


WHOLE = traces.ENVIRONMENT | {"hosts": [{}], "code": "1"}
FILES = {
    "environment.json": WHOLE,
    "shards.json": {"folder": "f", "stats": {"vertices": 1, "majority": {"val": 0.5}},
        "graph": {"files": {"a": {}}}},
    "resolved.json": {"role": "", "steps": 1, "asynchronous": False, "knobs": {}, "attempts": [
        {"first_epoch": 0, "device": "cpu", "threads": 1, "transport": "memory", "kernel": "numba"}]},
    "summary.json": {"epochs": 5, "diverged": None, "files": {"a": "b"}, "score": "acc",
        "best": {"val": 0.5}},
    "config.yaml": traces.config(),
}  # fmt: skip
WRITE = {
    ".json": files.write_json_atomic,
    ".yaml": lambda path, value: files.write_yaml_atomic(path, yaml.safe_dump(value)),
}


def places(value, before=()):
    """Where the values of a file stand."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*before, key)
        yield from places(value[key], (*before, key))


def read_whole(folder):
    trace = Trace(folder)
    _ = trace.config, trace.environment, trace.shards, trace.resolved, trace.summary
    return trace


@settings(max_examples=80)
@given(data=st.data())
def test_a_value_of_another_kind_is_read_as_it_is_or_refused_in_one_sentence(data, tmp_path_factory):
    """Whatever stands where, in a file whose checksum is right; what readers rely on is refused."""
    folder = tmp_path_factory.getbasetemp() / "kinds"
    folder.mkdir(exist_ok=True)
    for name, value in FILES.items():
        WRITE[Path(name).suffix](folder / name, value)
    name = data.draw(st.sampled_from(sorted(FILES)))
    where = data.draw(st.sampled_from(list(places(FILES[name]))))
    other = data.draw(st.sampled_from([[], {}, "x", None, True, -1, [1], {"a": 1}, 1e308, 3.5, 10**30]))
    changed = copy.deepcopy(FILES[name])
    reduce(lambda here, key: here[key], where[:-1], changed)[where[-1]] = other
    WRITE[Path(name).suffix](folder / name, changed)
    key = ".".join("*" if isinstance(part, int) else part for part in where)
    wanted = kinds.KINDS[name].get(key)
    try:
        read_whole(folder)
        assert wanted is None or isinstance(other, wanted)
    except InputError as error:
        assert name in str(error) and "\n" not in str(error)


SPARSE, TILED = [[1024, 16, 0.1, 2.0, 32]], {"lines": 1, "ahead": 0, "block": 8, "ns": 1.5}


@pytest.mark.parametrize("costs, tilings", [
    ({"sparse": SPARSE, "dense": [["x", 1.0]]}, {}),
    ({"sparse": [[1024]], "dense": [[16, 1.0]]}, {}),
    ({"sparse": [], "dense": [[16, 1.0]]}, {}),
    ({"sparse": SPARSE}, {}),
    ({"sparse": SPARSE, "dense": [[16, 1e999]]}, {}),
    ({"sparse": SPARSE, "dense": [[10**30, 1.0]]}, {}),
    (None, {"1024x32": [{**TILED, "block": "x"}]}),
    (None, {"1024x32": [{"lines": 1}]}),
], ids=str)  # fmt: skip
def test_costs_of_products_that_are_none_are_refused_before_a_worker_starts(tmp_path, costs, tilings):
    files.write_json_atomic(tmp_path / "shards.json", {"costs": costs, "tilings": tilings})
    with pytest.raises(InputError, match=r"shards.json is damaged: .*; prepare the run anew with fresh=true"):
        config.measured(tmp_path)


@pytest.mark.parametrize(
    "value, where", [({"b": "\ufffe"}, "a.0.b=.*"), ({"\ufffe": {"b": 1}}, r"a.0.\\ufffe")]
)
def test_json_with_a_character_that_no_picture_can_hold_is_damaged(tmp_path, value, where):
    files.write_json_atomic(tmp_path / "a.json", {"a": [value]})
    with pytest.raises(ValueError, match=f"{where} holds the control character"):
        files.read_json(tmp_path / "a.json")


# -- yaml beyond limits --


@pytest.mark.parametrize("says", WRONG)
def test_a_yaml_beyond_limits_is_one_sentence_whoever_reads_it(tmp_path, says):
    (tmp_path / "system").mkdir()
    path = tmp_path / "system" / "mine.yaml"
    path.write_text(WRONG[says])
    began = time.monotonic()
    for read in (
        lambda: cluster_of(str(path)),
        lambda: experiment.one("mine", tmp_path / "system"),
        lambda: runner.searchpath(tmp_path),
        lambda: overrides.check(["--config-dir", str(tmp_path), "system=mine"]),
        lambda: overrides.expand([f"hydra.searchpath=[file://{tmp_path}]", "-m", "system=mine"]),
    ):
        with pytest.raises(InputError, match=says.replace("  ", " ")) as refused:
            read()
        assert str(path) in str(refused.value) and "\n" not in str(refused.value)
    assert time.monotonic() - began < 20


def test_a_yaml_with_a_mistake_is_one_sentence_where_it_is_used(tmp_path, monkeypatch):
    (tmp_path / "system").mkdir()
    (tmp_path / "system" / "mine.yaml").write_text("bits: [")
    found = ["--config-dir", str(tmp_path)]
    assert overrides.check([*found, "system=vanilla"]) is not None
    for words in (["system=mine"], ["-m", "system=mine,vanilla", "epochs=2"]):
        with pytest.raises(InputError, match="is no yaml: .*mine.yaml.*, line 1") as refused:
            overrides.check([*found, *words])
        assert "\n" not in str(refused.value)
    monkeypatch.setenv("HALOBENCH_CONFIG_DIR", str(tmp_path))
    with pytest.raises(InputError, match="is no yaml: .*mine.yaml.*, line 1"):
        runner.composed([["system=mine"]])


def test_aliases_within_limits_are_read(tmp_path):
    (tmp_path / "a.yaml").write_text("a: &a [1, 2]\nb: {c: *a}\nd: {<<: &e {x: 1}, y: 2}\n")
    assert yaml.safe_load(yaml_text.read(tmp_path / "a.yaml"))["b"] == {"c": [1, 2]}


# -- what is shown of it --


def test_text_that_a_spreadsheet_would_compute_is_text_and_numbers_are_numbers():
    frame = pd.DataFrame({
        "label": ["=HYPERLINK(1)", "+a", "@b", "-c, d", "\t=e", "fine", "-", None],
        "number": [-1.5, 2, 3, 4, 5, 6, 7, float("nan")],
        "mixed": ["-1.5", -2, "+3", None, "=4", 5, True, ""],
        "@heading": 1,
    })  # fmt: skip
    assert tables.csv(frame).splitlines() == [
        "label,number,mixed,'@heading",
        "'=HYPERLINK(1),-1.5,-1.5,1", "'+a,2.0,-2,1", "'@b,3.0,+3,1", '"\'-c, d",4.0,,1',
        "'\t=e,5.0,'=4,1", "fine,6.0,5,1", "-,7.0,True,1", ",,,1",
    ]  # fmt: skip


@pytest.mark.parametrize("character", ["\x0b", "\ufffe", "\ud800"])
def test_a_label_that_no_picture_can_hold_is_refused(character):
    with pytest.raises(InputError, match="label=.* holds the control character"):
        config.check({**composed().composed, "label": f"a{character}b"})


def test_costs_of_products_are_read_as_they_were_measured(tmp_path):
    said = {"costs": {"sparse": SPARSE, "dense": [[16, 1.0]]}, "tilings": {"1024x32": [TILED]}}
    files.write_json_atomic(tmp_path / "shards.json", said)
    assert config.measured(tmp_path) == said
    assert config.measured(tmp_path / "none") == {"costs": None, "tilings": {}}
