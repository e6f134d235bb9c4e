"""The system that is checked, from the words of a command line."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.base.errors import InputError
from harness.base.words import key_of
from harness.core.context import RunFacts
from harness.core.system import System
from harness.run import config as configs
from harness.run import overrides, runner
from harness.run.composing import compose

MODELS = ("gcn", "sage", "gat")
WORDS = ("system", "cluster")  # what a check may be given: the rest of a run is the check's own


def facts_of(model: str, layers: int = 2) -> RunFacts:
    """A run of one of MODELS on two workers."""
    matrix = configs.make("model", {"name": model}).matrix
    return RunFacts(model, matrix, num_workers=2, symmetric=True, multilabel=False, layers=layers)


@dataclass
class Subject:
    """A system: its config block, and one made from it."""

    block: dict[str, Any]
    system: System

    @property
    def exact(self) -> dict[str, Any] | None:
        """The block at the knobs at which the system says that it is exact; None where it names none."""
        knobs = type(self.system).exact
        return None if knobs is None else {**self.block, **knobs}

    @property
    def layers(self) -> int:
        """Layers of the checks' models: three, or two where the system, at its knobs, refuses three."""
        return 2 if self.system.supports(facts_of("gcn", 3)) else 3

    def refusal(self, model: str) -> str | None:
        """Why the system cannot train a model, in its own words; None where it can."""
        return self.system.supports(facts_of(model))


def subject(words: Sequence[str], config_dir: str | None = None) -> Subject:
    """The system that `words` ("system=refresh", "system.period=3") describe. InputError where they describe
    none, or ask for more than a system."""
    if not any(word.startswith("system=") for word in words):
        raise InputError("system is not given: add system=NAME")
    for word in words:
        if key_of(word).split(".")[0] not in WORDS:
            raise InputError(f'"{word}" is not part of a system: give system=NAME and its knobs only')
    searched = runner.searchpath(config_dir)
    overrides.check([*searched, *words])
    run = configs.check(compose([*searched, *words]))
    return Subject(run.composed["system"], run.system)
