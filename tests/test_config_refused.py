"""A mistyped key, name or value gets one sentence with field, value and mend, before anything starts."""

from __future__ import annotations

import pytest

from harness import cli
from harness.base.errors import InputError
from harness.run import config, overrides
from harness.run.command import CONF
from tests import systems
from tests.launching import ROOT


def accept(*arguments: str) -> config.Run:
    overrides.check(list(arguments), CONF)
    return systems.asked(*arguments)


@pytest.mark.parametrize(
    "arguments, parts",
    [
        (["system=vanila"], ['system="vanila"', 'did you mean "vanilla"?']),
        (["dataset=twin/redit"], ['dataset="twin/redit"', 'did you mean "twin/reddit"?']),
        (["dataset=my_graph.npz"], ["give dataset=npz dataset.path=my_graph.npz"]),
        (["-m", "dataset=cora,a/b.npz"], ['dataset="a/b.npz" names a file', "dataset.path=a/b.npz"]),
        ([f"dataset={ROOT}/pyproject.toml"], ["names a file, not a data set", "`halobench import`"]),
        (["systm=vanilla"], ["systm", 'did you mean "system"?']),
        (["model.hiden=3"], ["model.hiden", 'did you mean "hidden"?']),
        (["system=sancus", "+system.bouund=2"], ["system.bouund", 'did you mean "bound"?']),
        (["lr=0.1"], ['lr is not a key of the config; did you mean "optimiser.lr"?']),
        (["system=digest_a", "update=delta"], ['did you mean "system.update"?']),
        (["system=sancus", "warmup=3"], ['did you mean "schedule.warmup" or "system.warmup"?']),
        (["device=gpu"], ['device="gpu" is not known; did you mean "cuda"?']),
        (["system=null"], ["system=null names no option", "vanilla"]),
        (["epochs=abc"], ["epochs=abc is not a whole number: give one, as epochs=200"]),
        (["epochs=null"], ["epochs=null is not a whole number"]),
        (["model.hidden=[1,2]"], ["model.hidden=[1, 2] is not a whole number"]),
        (["dataset.scale=x"], ["dataset.scale=x is not a number: give one, as dataset.scale=1.0"]),
        (["fresh=maybe"], ["fresh=maybe is not true or false: give one of them"]),
        (["label=[a,b]"], ["label=[a, b] is not text: give one, or null"]),
        (["evaluate=3"], ["evaluate=3 is not a block of keys: give evaluate.KEY=VALUE"]),
        (["cluster.inside.latency_us=x"], ["cluster.inside.latency_us=x is not a number: give one, or null"]),
        (["cluster.inside=3"], ["cluster.inside=3 is not a block of keys: give one"]),
        (["cluster.devices=[1]"], ["cluster.devices[0]=1 is not a block of keys: give one"]),
        (["cluster.devices=3"], ["cluster.devices=3 is not a list: give one"]),
        (["cluster.devices=[{flops:1}]"], ["cluster.devices[0].flops is not a key of Device; did you mean"]),
        (["cluster.devices=[{host:x}]"], ["cluster.devices[0].host=x is not a whole number: give one"]),
        (["+foo=1"], ["foo is not a key of the config; nearest of "]),
        (
            ["seed=1-3"],
            ["seed=1-3 is not a whole", "as seed=1; for several give -m seed=1,2,3"],
        ),
        (["system=SANCUS"], ['system="SANCUS" is not known; did you mean "sancus"?']),
        (["system=sancus", "system.epsilon=1"], ["what papers call epsilon is system.bound here"]),
        (["system=digest", "system.N=1"], ["what papers call N is system.interval here"]),
        (["system=capgnn", "system.cache=1"], ["call cache is system.capacity and system.policy here"]),
        (["--hlep"], ['--hlep is not an option; did you mean "--help"?']),
        (["~foo"], ["~foo deletes a key that is not there: leave it out"]),
        (["+model=sage"], ["+model=sage adds a group that is there already: give model=sage"]),
        (["model@foo=gcn"], ["model@foo=gcn names a package after its @", "leave the @ out"]),
        (["hydra.foo=1"], ["hydra.foo=1 is not a setting of Hydra's", "--hydra-help"]),
        (["label=${oc.env:NOPE}"], ["label=${oc.env:NOPE} refers to what is not there: give a value"]),
        (["epochs==3"], ["epochs==3 cannot be read", "as 'epochs=\"=3\"'"]),
        (["system=vanilla,", "zero_halo"], ["write a list without spaces, as system=A,B"]),
        (["=3"], ['"=3" is not KEY=VALUE']),
        (["gpus=0"], ["workers=0", "give 1 to "]),
        (["workers=2", "gpus=4"], ["workers=2 and gpus=4", "give workers=2 alone"]),
        (["optimiser.lr=1e400"], ["optimiser.lr=inf", "more than 0 and at most 1e+38"]),
        ([f"results={'x' * 300}"], ["results cannot be a folder", "names of at most 255"]),
        ([f"cache={'x/' * 3600}"], ["cache cannot be a folder: give a path of at most 3500 bytes"]),
        ([f"label={'x' * 300}"], ["label is too long for the name of a folder", "150 letters"]),
        (["epochs=-3"], ["epochs=-3", "give 1 to "]),
        (["system=sancus", "system.bound=1.5"], ["bound=1.5", "whole number"]),
        (["foo"], ['"foo"', "KEY=VALUE"]),
        (["model=gcn,sage"], ["model=gcn,sage", "-m"]),
        (["dataset=npz"], ["dataset.path", "VALUE"]),
        (["hydra.searchpath=[file:///no/such]"], ["/no/such", "file://FOLDER"]),
        (["system._target_=foo.Bar"], ['system._target_="foo.Bar"', "PYTHONPATH"]),
        (["model.name=gnc"], ['model.name="gnc"', 'did you mean "gcn"?']),
        (["model.norm=batsh"], ['model.norm="batsh"', 'did you mean "batch"?']),
        (["model.activation=swish"], ['model.activation="swish"', "elu, gelu, leaky_relu, relu, tanh"]),
        (["model.residual=perhaps"], ["model.residual=perhaps is not true or false: give one of them"]),
        (["+model._target_=torch.nn.Linear"], ['model._target_="torch.nn.Linear" is not a ModelConfig']),
        (["optimiser=sdg"], ['optimiser="sdg"', 'did you mean "sgd"?']),
        (["optimiser=newton"], ['optimiser="newton"', "adam, adamw, sgd"]),
        (["optimiser=sgd", "optimiser.momentum=0", "optimiser.nesterov=true"], ["nesterov=true", "momentum"]),
        (["optimiser.momentum=0.9"], ["optimiser.momentum", "lr"]),
        (["optimiser._target_=torch.optim.Adam"], ['_target_="torch.optim.Adam" is not an Optimiser']),
        (["schedule=cosin"], ['schedule="cosin"', 'did you mean "cosine"?']),
        (["evaluate.patience=3", "evaluate.every=0"], ["evaluate.patience=3", "every=1 or more"]),
    ],
    ids=lambda x: x[-1] if isinstance(x, list) else None,
)
def test_refused_in_one_sentence(arguments, parts):
    with pytest.raises(InputError) as refused:
        _ = accept(*arguments).directory
    sentence = str(refused.value)
    assert "\n" not in sentence and all(part in sentence for part in parts), sentence


WHY = ("has no effect: features=once fetches and keeps all boundary features; "
       "system.features=refetch caches a share")  # fmt: skip


@pytest.mark.parametrize(
    "arguments, expected",
    [
        ([], []),
        (["system.cache=0.2", "system.policy=inclusion"], []),  # their defaults
        (["system.cache=0.5"], [f"system.cache=0.5 {WHY}"]),
        (
            ["system.cache=0", "system.policy=degree"],
            [f"system.cache=0.0 {WHY}", f"system.policy=degree {WHY}"],
        ),
        (["system.cache=0.5", "system.policy=degree", "system.features=refetch"], []),
    ],
    ids=str,
)
def test_knobs_without_effect_are_told(arguments, expected):
    assert accept("system=pscgcn", *arguments).system.traits().ineffective == expected


def test_knobs_that_another_one_leaves_idle_are_told():
    words = ("system.momentum=0.5", "system.mode=synchronous", "system.period=7", "system.server_steps=0")
    for system, given, said in (
        ("pipegcn", words[:1], "momentum=0.5 has no effect: nothing is smoothed"),
        ("sylvie", words[1:3], "period=7 has no effect: at system.mode=synchronous every exchange is"),
        ("llcg", (*words[3:], "system.batch=7"), "batch=7 has no effect: at system.server_steps=0 nothing"),
    ):
        (found,) = accept(f"system={system}", *given).system.traits().ineffective
        assert found.startswith(f"system.{said}")


def test_what_has_no_effect_is_a_warning_before_workers_start(place):
    ended = place.run("system=pscgcn", "system.cache=0.5", "launch=prepare")
    assert ended.code == 0 and ended.err == f"warning: system.cache=0.5 {WHY}\n"


@pytest.mark.parametrize("asked", ["range(1,99999999999)", "range(1,9,0)", "range(0.0,1.0,1e-30)"])
def test_a_range_without_end_is_refused_before_it_is_written_out(asked):
    with pytest.raises(
        InputError, match=r"seed=range.* is a range of more than 100000 values, or without end"
    ):
        overrides.check(["-m", f"seed={asked}"], CONF)
    assert overrides.check(["-m", "seed=range(1,4)"], CONF) is None


def test_a_sweep_of_more_runs_than_anyone_waits_for_is_refused_before_it_is_written_out():
    asked = ["-m", "seed=range(0,1000)", "epochs=1,2", "model.hidden=range(1,1001)"]
    with pytest.raises(InputError, match="a sweep of 2000000 runs, and 100000 are the most"):
        overrides.check(asked, CONF)


@pytest.mark.parametrize("number", ["9" * 6000, "0x" + "f" * 6000])
def test_a_number_that_python_does_not_show_is_refused(capsys, number):
    for words in (
        ["system=vanilla", f"seed={number}"],
        ["-m", "system=vanilla", f"seed={number},2"],
        ["dataset=npz", f"dataset.path={number}"],
        ["runs", "extend", "run", f"epochs={number}"],
    ):
        assert cli.main(words) == 2
        told = capsys.readouterr().err
        assert "digits: give a number of fewer" in told and len(told) < 200 and told.count("\n") == 1


def test_every_value_of_a_sweep_is_checked():
    with pytest.raises(InputError, match="sancuss"):
        overrides.check(["system=vanilla,sancuss", "-m"], CONF)


def test_a_sweep_over_systems_sets_keys_that_the_default_system_lacks():
    given = ["-m", "system=digest,digest_a", "system.interval=5", "model.hidden=8", "seed=1,2"]
    assert overrides.check(given, CONF) is None
    assert overrides.for_hydra(given, CONF) == [
        "-m",
        "system=digest,digest_a",
        "system.interval=choice(5)",
        "model.hidden=8",
        "seed=1,2",
    ]
    for same in (given[1:2] + given[3:], ["-m", "system=digest", "system.interval=5,6"]):
        assert overrides.for_hydra(same, CONF) == same


def test_damaged_config_of_a_run_is_named(tmp_path):
    for text in ("system: [", "- a", ""):
        (tmp_path / "config.yaml").write_text(text)
        with pytest.raises(InputError, match="damaged"):
            config.load(tmp_path)
