"""A config that is composed from what was kept is the one that Hydra composes."""

import hydra
from hydra.errors import HydraException
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from omegaconf.errors import OmegaConfBaseException

from harness.run import composing
from harness.run.composing import compose

CHOICES = [
    "system=sancus", "system=cdfgnn", "system=nothing", "dataset=cora", "dataset=twin/reddit", "model=gat",
    "partition=ebv", "cluster=hosts/10g", "combine=quantised", "~schedule", "+score=auc", "score=auc",
]  # fmt: skip
VALUES = [
    "seed=3", "seed=3.5", "label='a b'", "label=null", "label=${dataset.name}", "system.bound=2",
    "+new.key=[1,2]", "++seed=7", "+seed=7", "~label", "~epochs", "~epochs=3", "model={hidden: 3}",
    "model.hidden={a: 3}",
    "system.nothing=1", "partition@x=metis", "nothing@x=metis",
]  # fmt: skip


def composed(make, words: list[str]):
    """The config and what may be changed in it, or the error."""
    try:
        made = make(words)
    except (HydraException, OmegaConfBaseException) as error:
        return type(error), str(error)
    return repr(made), made._metadata.flags


def by_hydra(words: list[str]):
    with composing.hydra_initialised():
        return hydra.compose("config", overrides=words)


@given(
    choices=st.lists(st.sampled_from(CHOICES), max_size=2, unique=True),
    values=st.lists(st.sampled_from(VALUES), max_size=4),
    order=st.randoms(use_true_random=False),
)
@examples(max_examples=15)
def test_it_is_what_hydra_composes(choices, values, order):
    """Or the same error, whatever is chosen and set, in whatever order."""
    words = [*choices, *values]
    order.shuffle(words)
    assert composed(compose, words) == composed(by_hydra, words)


def test_hydra_composes_once_but_for_options_with_defaults_of_their_own(monkeypatch):
    made, by_hydra = [], composing._by_hydra
    composing._kept.cache_clear()
    monkeypatch.setattr(composing, "_by_hydra", lambda words: made.append(words) or by_hydra(words))
    for system in ("sancus", "vanilla", "cdfgnn"):
        for seed in (1, 2):
            assert compose([f"system={system}", "dataset=cora", f"seed={seed}", "label=a"]).seed == seed
    assert made == [(), ("system=cdfgnn", "dataset=cora")]


def test_a_yaml_that_has_changed_is_read_again(tmp_path):
    """And one that has come."""
    (tmp_path / "system").mkdir()
    own, words = tmp_path / "system" / "own.yaml", ["system=own", f"hydra.searchpath=[file://{tmp_path}]"]
    for text in ("_target_: a.B\nperiod: 3\n", "_target_: a.B\nperiod: 40\n"):
        own.write_text(text)
        made = compose([*words, "seed=2"])
        assert made == by_hydra([*words, "seed=2"]) and made.system.period in (3, 40) and made.seed == 2
        made.system.period = 1  # nobody else's
    own.with_name(".#own.yaml").symlink_to("nothing")  # an editor's lock
    own.with_name("other.yaml").write_text("_target_: a.C\n")
    assert compose(["system=other", *words[1:]]).system == {"_target_": "a.C"}
    own.with_name("based.yaml").write_text("defaults: [vanilla]\nperiod: 5\n")
    own.with_name("whole.yaml").write_text("# @package _global_\nseed: 5\n")
    for option in ("based", "whole"):
        asked = [f"system={option}", *words[1:]]
        assert composed(compose, asked) == composed(by_hydra, asked)
