"""What every system's tests inherit: the variants they run over and how a run is asked for.

A new yaml in `conf/system/` is tested as it stands, and at the knobs at which its class says that it is exact
(`System.exact`); a module in `tests/variants/` says more.
"""

import copy
import dataclasses
import functools
import importlib.util
import pkgutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from harness.core.draws import draws
from harness.core.mixins import AsynchronousSystem
from harness.data.partition import io
from harness.data.partition.vertexcut import EdgeAssignment
from harness.dev.conformance.runs import Outcome, Settings, planted_graph, run, shards_of  # noqa: F401
from harness.dev.conformance.subject import facts_of
from harness.results import files
from harness.run import config
from harness.run.composing import compose
from harness.run.config import make_system
from tests import traces, variants
from tests.oracles import dense, gat
from tests.oracles.samples import random_graph

CONF = Path(__file__).resolve().parent.parent / "conf" / "system"


def asked(*words: str) -> config.Run:
    """The run that a command of these words asks for."""
    return config.check(compose(words))


def written(folder: Path) -> dict[str, ModuleType]:
    """The modules of variants in a folder, by name."""
    found = {}
    for module in pkgutil.iter_modules([str(folder)]):
        spec = importlib.util.spec_from_file_location(f"variants_{module.name}", folder / f"{module.name}.py")
        found[module.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found[module.name])
    return found


def derived(name: str, block: dict[str, Any]) -> SimpleNamespace:
    """The variants of a system that has no module of them: its exact knobs as its class names them, its yaml
    as it stands for the rest, and the models that it does not refuse.
    """
    system = make_system(block)
    exact, as_it_stands = type(system).exact, [(name, {})]
    models = [m for m in ("gcn", "sage", "gat") if system.supports(facts_of(m)) is None]
    return SimpleNamespace(
        EXACT={name: [exact]} if exact is not None else {},
        STALE=[] if isinstance(system, AsynchronousSystem) else as_it_stands,
        MODELS=models,
        METHODS=["ebv", "hep", "dne", "metis/edges"] if system.cut == "vertex" else None,
    )


def collected(conf: Path, folder: Path) -> dict[str, Any]:
    """The variants of every system of a folder of yamls, by the first part of its name: as a module of
    `folder` has them, else derived."""
    found: dict[str, Any] = written(folder)
    for path in sorted(conf.glob("*.yaml")):
        if path.stem not in found:
            values = {
                key: value for key, value in yaml.safe_load(path.read_text()).items() if key != "defaults"
            }
            found[path.stem] = derived(path.stem, values)
    return found


def _collect(table: str) -> list:
    return [(module, getattr(module, table)) for module in VARIANTS.values() if hasattr(module, table)]


VARIANTS = collected(CONF, Path(variants.__path__[0]))
EXACT: dict[str, list[dict] | dict | None] = {
    name: knobs for _, table in _collect("EXACT") for name, knobs in table.items()
}
EXACT_VARIANTS = [
    (name, knobs) for name, settings in EXACT.items() if isinstance(settings, list) for knobs in settings
]
SINGLE_VARIANTS = [(name, knobs or {}) for name, knobs in EXACT.items() if not isinstance(knobs, list)]
STALE_VARIANTS = [variant for _, table in _collect("STALE") for variant in table]
PARTITIONS = [(1, "block"), (2, "metis"), (4, "random")]


def models_of(name: str) -> list[str]:
    """The models a system supports."""
    return getattr(_variants(name), "MODELS", ["gcn", "sage"])


def takes_weights(block: dict, model: str) -> bool:
    """Whether a system trains that model on a graph whose edges have weights."""
    return make_system(block).supports(dataclasses.replace(facts_of(model), weighted=True)) is None


def partitions_of(name: str) -> list[tuple[int, str]]:
    """Workers and partition methods over which a system's exact knob is tried."""
    methods = getattr(_variants(name), "METHODS", None)
    if methods is None:
        return PARTITIONS
    return [(parts, methods[at % len(methods)]) for at, (parts, _) in enumerate(PARTITIONS)]


def _variants(name: str):
    return VARIANTS[name.split("/")[0]]


@functools.cache
def _of_yaml(name: str) -> dict:
    values = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    values.pop("defaults", None)  # Hydra's
    return values


def block(name: str, **knobs) -> dict:
    """The config block of a system, from its yaml, with knobs changed."""
    values = copy.deepcopy(_of_yaml(name))
    assert set(knobs) <= set(values), f"{name} has no knob {set(knobs) - set(values)}"
    return {**values, **knobs}


def first_often(variants: list[tuple], most: int, seconds: float) -> list:
    """The variants as parameters: the first `most` of a system in every run of the suite, the rest at night.

    seconds   that one of them takes on a slow machine
    """
    seen: Counter[str] = Counter()
    given = []
    for variant in variants:
        seen[variant[0]] += 1
        marks = pytest.mark.nightly(seconds) if seen[variant[0]] > most else ()
        given.append(pytest.param(variant, marks=marks, id=label(variant)))
    return given


def label(variant) -> str:
    name, knobs = variant
    return "-".join([name, *(f"{k}={v}" for k, v in knobs.items())])


def small(model: str = "gcn", layers: int = 2, hidden: int = 4, **more) -> dict:
    """The block of a small model without dropout; attention has two heads."""
    heads = {"heads": 2, "out_heads": 2} if model == "gat" else {}
    return {"name": model, "layers": layers, "hidden": hidden, "dropout": 0.0, **heads, **more}


def history(train, graph, outcome: Outcome, how: Settings, *drawn, **knobs) -> dense.History:
    """What the `train` of an oracle, over parts or a vertex-cut, makes of the outcome's first weights."""
    cut = outcome.assignment
    masters = [cut.masters()] if isinstance(cut, EdgeAssignment) else []
    given = cut, *masters, outcome.weights[0], *drawn
    return train(graph, *given, epochs=how.epochs, **knobs, **how.optimiser)


def exact(graph, outcome: Outcome, how: Settings) -> dense.History:
    """Full-graph training from the outcome's first weights."""
    if how.model["name"] == "gat":
        return gat.train(graph, outcome.weights[0], epochs=how.epochs, **how.optimiser)
    model = {"model": how.model["name"], "normalisation": how.model.get("normalisation", "symmetric")}
    return dense.train(graph, outcome.weights[0], epochs=how.epochs, **model, **how.optimiser)


def assert_trained_alike(outcome: Outcome, history, rtol: float = 1e-5) -> None:
    """Losses and weights of every epoch equal an oracle's."""
    np.testing.assert_allclose(outcome.losses, history.losses, rtol=rtol)
    for after, want in zip(outcome.weights[1:], history.weights_after, strict=True):
        for name in want:
            np.testing.assert_allclose(after[name], want[name], rtol=rtol, atol=1e-8, err_msg=name)


def assert_trained_as(outcome: Outcome, other: Outcome, rtol: float = 1e-5) -> None:
    """Losses and weights of every epoch equal those of another run."""
    history = dense.History(losses=other.losses, weights_after=other.weights[1:])
    assert_trained_alike(outcome, history, rtol)


def bytes_by_layer(outcome: Outcome, epoch: int, direction: str) -> np.ndarray:
    """[L] bytes that all workers sent in an epoch, those of the weights apart."""
    total = np.zeros(len(outcome.widths) - 1, int)
    for (layer, way, purpose), (_, size) in outcome.sent(epoch).items():
        if way == direction and purpose != "weights":
            total[layer] += size
    return total


def drawer(seed: int) -> Callable[..., np.ndarray]:
    """The harness's own draws of a run, as oracles ask for them."""
    return lambda *message: draws(seed, *message, torch.float64).numpy()


def of_the_system(metrics: dict[tuple[int, str], float]) -> dict[tuple[int, str], float]:
    """An epoch's metrics of a worker, without those that the model itself reports."""
    return {key: value for key, value in metrics.items() if key[1] not in ("transform_first", "needed_rows")}


def ready(folder: Path, composed: dict[str, Any]) -> Path:
    """The folder of a run of two workers on a small graph, ready for `tests.jobs.work`."""
    traces.prepare(folder, composed)
    (folder / "shards").mkdir()
    for shard in shards_of(random_graph(6, vertices=30), np.arange(30) % 2, 2):
        io.save(shard, folder / "shards")
    described = {"folder": str(folder / "shards"), "stats": {"graph": "random"}}
    files.write_json_atomic(folder / "shards.json", described)
    return folder
