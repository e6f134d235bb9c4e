"""A mistyped key, name or value gets one sentence with field, value and mend, before anything starts."""

from collections.abc import Callable

import pytest

from harness import cli
from harness.base.errors import InputError
from harness.results import files
from harness.run import config, launch, overrides
from tests import systems
from tests.launching import ROOT
from tests.test_identity import changed


def accept(*arguments: str) -> config.Run:
    composed = overrides.check(list(arguments))
    return systems.asked(*arguments) if composed is None else config.check(composed)


def assert_one_sentence(made: Callable, parts: list[str]) -> None:
    with pytest.raises(InputError) as refused:
        made()
    sentence = str(refused.value)
    assert "\n" not in sentence and all(part in sentence for part in parts), sentence


@pytest.mark.parametrize(
    "arguments, parts",
    [
        (["system=vanila"], ['system="vanila"', 'did you mean "vanilla"?']),
        (["dataset=my_graph.npz"], ["give dataset=npz dataset.path=my_graph.npz"]),
        ([f"dataset={ROOT}/pyproject.toml"], ["names a file, not a data set", "`halobench import`"]),
        (["systm=vanilla"], ["systm", 'did you mean "system"?']),
        (["model.hiden=3"], ["model.hiden", 'did you mean "hidden"?']),
        (["system=sancus", "+system.bouund=2"], ["system.bouund", 'did you mean "bound"?']),
        (["lr=0.1"], ['lr is not a key of the config; did you mean "optimiser.lr"?']),
        (["system=sancus", "warmup=3"], ['did you mean "schedule.warmup" or "system.warmup"?']),
        (["system=null"], ["system=null names no option", "vanilla"]),
        (["system=vanilla,sancuss", "-m"], ['system="sancuss" is not known']),
        (["-m", "system=glob(c*)"], ["system=glob(c*) is a pattern: list what it stands for, as system=A,B"]),
        (["--cfg", "job", "system=vanila"], ['system="vanila"', 'did you mean "vanilla"?']),
        (["--cfg", "job", "sede=1"], ["sede", 'did you mean "seed"?']),
        (["--cfg", "job", "--resolve", "label=${oc.env:NOPE}"], ["label=${oc.env:NOPE} refers to what is"]),
        (["--cfg", "job", "seed=1,2"], ["seed=1,2 lists several values: add -m"]),
        (["epochs=abc"], ["epochs=abc is not a whole number: give one, as epochs=200"]),
        (["+foo=1"], ["foo is not a key of the config; nearest of "]),
        (["seed=1-3"], ["seed=1-3 is not a whole", "as seed=1; for several give -m seed=1,2,3"]),
        (["seed=9-1000000000000"], ["for several give -m seed=9,10,11"]),
        (["seed=3-2"], ["for several give -m seed=2,3"]),
        (["system=SANCUS"], ['system="SANCUS" is not known; did you mean "sancus"?']),
        (["system=sancus", "system.epsilon=1"], ["what papers call epsilon is system.bound here"]),
        (["system=capgnn", "system.cache=1"], ["call cache is system.capacity and system.policy here"]),
        (["~foo"], ["~foo deletes a key that is not there: leave it out"]),
        (["+model=sage"], ["+model=sage adds a group that is there already: give model=sage"]),
        (["model@foo=gcn"], ["model@foo=gcn names a package after its @", "leave the @ out"]),
        (["hydra.foo=1"], ["hydra.foo=1 is not a setting of Hydra's", "--hydra-help"]),
        (["label=${oc.env:NOPE}"], ["label=${oc.env:NOPE} refers to what is not there: give a value"]),
        (["epochs==3"], ["epochs==3 cannot be read", "as 'epochs=\"=3\"'"]),
        (["system=vanilla,", "zero_halo"], ["write a list without spaces, as system=A,B"]),
        (["=3"], ['"=3" is not KEY=VALUE']),
        (["workers=2", "gpus=4"], ["workers=2 and gpus=4", "give workers=2 alone"]),
        (["optimiser.lr=1e400"], ["optimiser.lr=inf", "more than 0 and at most 1e+38"]),
        (["system=sancus", "system.bound=1.5"], ["bound=1.5", "whole number"]),
        (["foo"], ['"foo"', "KEY=VALUE"]),
        (["model=gcn,sage"], ["model=gcn,sage", "-m"]),
        (["dataset=npz"], ["dataset.path", "VALUE"]),
        (["hydra.searchpath=[file:///no/such]"], ["/no/such", "file://FOLDER"]),
        (["hydra.searchpath=[pkg://numpy]", "epochs=x", "system=none"], ["system=none cannot be used: "]),
        (["--config-dir", "/no/such"], ['--config-dir="/no/such" is not a folder: give the one that']),
        (["seed=1", "--config-dir"], ["--config-dir/-cd: expected one argument; halobench run --help"]),
        (["optimiser=sgd", "optimiser.momentum=0", "optimiser.nesterov=true"], ["nesterov=true", "momentum"]),
        (["evaluate.patience=3", "evaluate.every=0"], ["evaluate.patience=3", "every=1 or more"]),
    ],
    ids=lambda words: words[-1][:40],
)
def test_refused_in_one_sentence(arguments, parts):
    assert_one_sentence(lambda: accept(*arguments).directory, parts)


@pytest.mark.parametrize(
    "word, parts",
    [
        ("device=gpu", ['device="gpu" is not known; did you mean "cuda"?']),
        ("evaluate._target_=foo.Bar", ["evaluate._target_ is not a key of EvaluateConfig"]),
        ("cluster._target_=foo.Bar", ["cluster._target_ is not a key of Cluster"]),
        ("dataset.scale=x", ["dataset.scale=x is not a number: give one, as dataset.scale=1.0"]),
        ("fresh=maybe", ["fresh=maybe is not true or false: give one of them"]),
        ("label=[a,b]", ["label=[a, b] is not text: give one, or null"]),
        ("evaluate=3", ["evaluate=3 is not a block of keys: give evaluate.KEY=VALUE"]),
        *(
            (f"{name}=5", [f"{name}=5 is not a block of keys: give {name}=NAME"])
            for name in ("straggler", "labels", "combine", "cluster", "dataset")
        ),
        ("cluster.inside.latency_us=x", ["cluster.inside.latency_us=x is not a number: give one, or null"]),
        ("cluster.devices=[{host: -1}]", ["cluster.devices[0].host=-1 is out of range: give "]),
        ("cluster.devices=[1]", ["cluster.devices[0]=1 is not a block of keys: give one"]),
        ("cluster.devices=[{flops: 1}]", ["cluster.devices[0].flops is not a key of Device; did you mean"]),
        (f"results={'x' * 300}", ["results cannot be a folder", "names of at most 255"]),
        (f"cache={'x/' * 3600}", ["cache cannot be a folder: give a path of at most 3500 bytes"]),
        (f"label={'x' * 300}", ["label is too long for the name of a folder", "150 letters"]),
        ("system._target_=foo.Bar", ['system._target_="foo.Bar"', "PYTHONPATH"]),
        ("model.name=gnc", ['model.name="gnc"', 'did you mean "gcn"?']),
        ("model._target_=torch.nn.Linear", ['model._target_="torch.nn.Linear" is not a ModelConfig']),
        ("optimiser._target_=torch.optim.Adam", ['_target_="torch.optim.Adam" is not an Optimiser']),
    ],
    ids=lambda given: given[:40] if isinstance(given, str) else "",
)
def test_a_value_is_refused_in_one_sentence(word, parts):
    """Whatever words the config was composed of."""
    assert_one_sentence(lambda: changed(word).directory, parts)


def test_a_range_without_end_is_refused_before_it_is_written_out():
    for asked in ("range(1,99999999999)", "range(1,9,0)", "range(0.0,1.0,1e-30)"):
        with pytest.raises(InputError, match=r"seed=range.* is a range of more than 100000 values"):
            overrides.check(["-m", f"seed={asked}"])
    assert overrides.check(["-m", "seed=range(1,4)"]) is None
    with pytest.raises(InputError, match="lists no values: give KEY=A,B, or hydra/sweeper=optuna"):
        overrides.expand(["seed=interval(1,3)"])


def test_a_sweep_of_more_runs_than_anyone_waits_for_is_refused_before_it_is_written_out():
    asked = ["-m", "seed=range(0,1000)", "epochs=1,2", "model.hidden=range(1,1001)"]
    with pytest.raises(InputError, match="a sweep of 2000000 runs, and 100000 are the most"):
        overrides.check(asked)


@pytest.mark.parametrize("number", ["9" * 6000, "0x" + "f" * 6000])
def test_a_number_that_python_does_not_show_is_refused(refused, number):
    for words in (
        ["system=vanilla", f"seed={number}"],
        ["-m", "system=vanilla", f"seed={number},2"],
        ["dataset=npz", f"dataset.path={number}"],
        ["runs", "extend", "run", f"epochs={number}"],
    ):
        assert len(refused(cli.main, words, "digits: give a number of fewer")) < 200


def test_a_sweep_over_systems_sets_keys_that_the_default_system_lacks():
    given = ["-m", "system=digest,digest_a", "system.interval=5", "model.hidden=8", "seed=1,2"]
    assert overrides.check(given) is None
    assert overrides.for_sweeper(given) == [*given[:2], "system.interval=choice(5)", *given[3:]]
    for same in (given[1:2] + given[3:], ["-m", "system=digest", "system.interval=5,6"]):
        assert overrides.for_sweeper(same) == same


def test_damaged_config_of_a_run_is_named(tmp_path):
    for text in ("system: [", "- a", ""):
        (tmp_path / "config.yaml").write_text(text)
        with pytest.raises(InputError, match="damaged"):
            config.load(tmp_path)


def test_a_model_that_no_memory_holds_is_refused_before_a_worker_starts(tmp_path):
    files.write_json_atomic(tmp_path / "shards.json", {"stats": {"vertices": 10**9}})
    with pytest.raises(
        InputError, match=r"^model.hidden=512 and model.layers=3 take over 2048 GB, and this "
    ):
        launch.launch(accept("model.hidden=512", "model.layers=3", "device=cpu"), tmp_path)
