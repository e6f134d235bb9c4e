"""The runs of README and the pages of docs/: so many are composed, and trained, that every word of a command
is in one. The suite trains them shortened (two epochs of a small graph, two values of a sweep), the nightly
target all of them on the page's own graph, workers and sweeps.
"""

import pytest

from harness.data import real
from harness.run import overrides, runner
from harness.run.runner import Places
from tests.commands import fewest, of
from tests.launching import Started


def shortened(words: list[str]) -> list[str]:
    """The same command on the test's graph: two workers at most, two epochs, of the first key that is swept
    the first and last value, of the others the last.
    """
    short, swept = [], False
    for word in words:
        key, equals, value = word.partition("=")
        if key in ("dataset", "data_dir", "results", "device", "evaluate.every") or key.startswith(
            "dataset."
        ):
            continue
        values = [value] if value.startswith("[") else value.split(",")  # a list is one value
        if key in ("workers", "gpus"):
            values = sorted({str(min(2, int(each))) for each in values})
        if key == "straggler.delay":
            values = ["0.001"]
        if key == "hydra.sweeper.n_trials":
            values = ["2"]
        if len(values) > 1:
            values = [values[0], values[-1]] if key != "seed" and not swept else values[-1:]
            swept |= len(values) > 1
        if key != "epochs":
            short.append(f"{key}{equals}{','.join(values)}")
    return [*short, "epochs=2"]


def covering(runs: list[list[str]]) -> list[list[str]]:
    """Of a sweep's runs so many that each value is in one; one seed stands for all."""
    seen, found = set(), []
    for run in runs:
        words = {word for word in run if not word.startswith("seed=")}
        if not found or words - seen:
            found.append(run)
            seen |= words
    return found


def single(words: list[str]) -> set[str]:
    """The words, with those of a sweep as one for each value."""
    values = (word.partition("=") for word in words)
    return {
        f"{key}{equals}{each}"
        for key, equals, value in values
        for each in ([value] if value.startswith("[") else value.split(","))
    }


# Pages with many commands, of like keys.
COMPOSED_AT_NIGHT = ("docs/results", "docs/systems")


@pytest.mark.parametrize(
    "command", fewest(of("run", nightly=COMPOSED_AT_NIGHT), lambda command: single(command.rest))
)
def test_a_run_of_a_page_is_composed(command, tmp_path):
    """As the page has it, each value of its sweep at least once: keys, values and the folder."""
    words = command.rest
    asked = [word for word in words if word != "-m"]
    assert (overrides.check(words) is None) == ("-m" in words)
    places = Places(tmp_path, tmp_path, tmp_path)
    sweep = [word for word in asked if not word.startswith(("results=", "data_dir=", "hydra"))]
    assert runner.composed(covering(runner.expand(sweep)), places)


# Pages whose commands are like those of others.
AT_NIGHT = (
    "docs/faq",
    "docs/findings",
    "docs/howto/sweep",
    "docs/index",
    "docs/results",
    "docs/scale",
    "docs/systems",
)


@pytest.mark.parametrize(
    "command", fewest(of("run", nightly=AT_NIGHT), lambda command: single(shortened(command.rest)))
)
def test_a_run_of_a_page_trains(command, place):
    if "hydra/sweeper=optuna" in command.line:
        pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    done = place.run(*shortened(command.rest))
    assert done.code == 0, done.err
    summaries = list(place.results.glob("*/*/summary.json"))
    assert bool(summaries) != ("launch=prepare" in command.line)


@pytest.mark.nightly(300)
@pytest.mark.parametrize("command", of("run"))
def test_a_run_of_a_page_trains_on_its_own_graph(command, place, real_data, tmp_path):
    """All workers and all values of each sweep, but two seeds and two epochs at most."""
    if "hydra/" in command.line:
        pytest.skip("another launcher or sweeper; the same runs stand on the page without it")
    if "my_graph.npz" in command.line:
        pytest.skip("the reader's own graph")
    words = [
        word for word in command.rest if not word.startswith(("data_dir=", "results=", "device=", "epochs="))
    ]
    words = [",".join(word.split(",")[:2]) if word.startswith("seed=") else word for word in words]
    names = [name for word in words if word.startswith("dataset=") for name in word[8:].split(",")]
    missing = [name for name in names if name in real.SETS and not real.present(name, real_data)]
    if missing:
        pytest.skip(f"{missing[0]} is not in the folder of real graphs")
    own = [f"results={tmp_path / 'results'}", f"cache={place.folder / 'cache'}", f"data_dir={real_data}"]
    done = Started(place, [*words, *own, "epochs=2", "progress=false"]).end()
    assert done.code == 0, done.err
