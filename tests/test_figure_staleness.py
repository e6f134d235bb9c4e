"""What the pictures of staleness draw: scores minus exact training's, and steps that do not settle."""

import pytest

from harness.papers.figures import minus_exact, staleness_stability
from harness.results.report import groups
from tests import traces


@pytest.mark.parametrize("remote, limit", [(0.0, 38.0), (0.5, 1.026), (1.0, 0.513)])
def test_the_largest_stable_step_is_where_a_simulated_error_begins_to_grow(remote, limit):
    """The recurrence itself, step by step."""

    def grows(step):
        w, m = [1.0, 1.0, 1.0], 0.0
        for _ in range(6000):
            g = (1 - remote) ** 2 * w[-1] + 2 * remote * (1 - remote) * w[-2] + remote**2 * w[-3]
            m = 0.9 * m + 0.1 * g
            w = [*w[-2:], w[-1] - step * m]
            if abs(w[-1]) > 1e6:
                return True
        return False

    found = staleness_stability.largest_step(remote)
    assert found == pytest.approx(limit, rel=2e-3)
    assert grows(1.1 * found) and not grows(0.9 * found)


def test_scores_are_drawn_minus_exact_trainings_of_the_same_keys(tmp_path):
    """A system is 0.1 below at 5 labels per class and level at the usual 20, under adam alone."""
    for optimiser in ("Adam", "Sgd"):
        for few in (5, None):
            behind = 0.1 * (optimiser == "Adam" and few == 5)
            for name, less in (("vanilla", 0.0), ("stale", behind)):
                composed = traces.config(
                    system___target_=f"systems.{name}.S",
                    optimiser={"_target_": f"o.{optimiser}"},
                    dataset__split="low_label",
                    **({"dataset__labels_per_class": few} if few else {}),
                )
                role = {"role": "reference"} if name == "vanilla" else {}
                traces.finished(
                    tmp_path / f"{optimiser}{few}{name}", composed, ran_on=role, target=0.8 - less
                )
    compared, _ = groups.load([tmp_path])
    stale, exact = (groups.Run(tmp_path / f"Adam5{name}").summary for name in ("stale", "vanilla"))
    keys = {"over": "dataset.labels_per_class", "panel": ["optimiser._target_", "optimiser.momentum"]}
    for last in (False, True):
        figure = minus_exact.draw(compared, "t", label="labels", last=last, **keys)
        by_title = {ax.get_title(loc="left"): ax for ax in figure.axes}
        assert set(by_title) == {"optimiser=adam", "optimiser=sgd"}
        drawn = {title: {line.get_label(): line for line in ax.lines} for title, ax in by_title.items()}
        assert all(list(each["stale"].get_xdata()) == [5, 20] for each in drawn.values())
        kind = "final" if last else "best"
        less = 100 * (stale[kind]["test"] - exact[kind]["test"])
        assert less < -2
        assert list(drawn["optimiser=adam"]["stale"].get_ydata()) == pytest.approx([less, 0], abs=1e-9)
        assert list(drawn["optimiser=sgd"]["stale"].get_ydata()) == pytest.approx([0, 0], abs=1e-9)
        assert "vanilla" not in drawn["optimiser=sgd"]
        assert ("last epoch" in figure.axes[0].get_ylabel()) == last
