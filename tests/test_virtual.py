"""A batch's tasks on a virtual clock: what any order of them must come to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systems.parts.virtual import Stage, made

SECONDS = st.floats(0.001, 1.0)


@st.composite
def stages(draw) -> list[Stage]:
    """Hops that follow each other, and fetches after any of them."""
    hops = draw(st.integers(1, 3))
    found = [Stage(draw(st.integers(1, 4)), draw(SECONDS), hop - 1 if hop else None) for hop in range(hops)]
    for _ in range(draw(st.integers(0, 3))):
        after = draw(st.sampled_from([None, *range(hops)]))
        found.append(Stage(draw(st.integers(0, 4)), draw(SECONDS), after, in_order=draw(st.booleans())))
    return found


def work(found: list[Stage]) -> float:
    return sum(each.tasks * each.seconds for each in found)


@given(
    found=stages(),
    batches=st.integers(1, 6),
    threads=st.integers(1, 5),
    order=st.sampled_from(["dag", "fifo"]),
)
def test_threads_that_are_never_idle_while_there_is_work_are_within_grahams_bound(
    found, batches, threads, order
):
    """No schedule is faster than the work over the threads, and none that leaves no thread idle takes more
    than that and the longest chain; one thread takes the work."""
    last, whole = max(made(found, batches, threads, order)), batches * work(found)
    chain = batches * sum(each.seconds for each in found)
    if threads == 1:
        assert last == pytest.approx(whole, rel=1e-9)
    assert whole / threads * (1 - 1e-9) <= last <= (whole / threads + chain) * (1 + 1e-9)


@given(found=stages(), batches=st.integers(1, 4), latency=st.floats(0, 0.5))
def test_latency_lies_between_hops_and_keeps_no_thread(found, batches, latency):
    """As many threads as there are tasks: every batch takes its longest chain."""
    threads = batches * sum(each.tasks for each in found)
    plain: list[float] = []
    for each in (each for each in found if not each.in_order):
        before = 0.0 if each.after is None else plain[each.after]
        plain.append(before + (each.seconds + latency if each.tasks else 0.0))
    held = [each.seconds + latency for each in found if each.in_order and each.tasks]
    last = max(plain) + max(held, default=0.0)
    for order in ("dag", "fifo"):
        np.testing.assert_allclose(made(found, batches, threads, order, latency), [last] * batches, rtol=1e-9)


def test_fetches_in_order_wait_for_the_batches_before():
    """Two batches of a hop and a fetch. As tasks are ready both hops come first, whatever fetches wait for;
    with the oldest first the first batch is made before the second's hop. A fetch in order waits for hops."""
    hop, fetch = Stage(1, 1.0), Stage(1, 1.0, 0)
    assert made([hop, fetch], 2, 1, "fifo") == [3.0, 4.0]
    assert made([hop, fetch], 2, 1, "dag") == [2.0, 4.0]
    held = Stage(1, 1.0, in_order=True)
    assert made([hop, held], 2, 1, "fifo") == [3.0, 4.0]
    assert made([Stage(1, 2.0), held], 2, 2, "dag", latency=0.5) == [4.0, 4.0]


def test_inside_a_batch_the_cheapest_task_is_first():
    """Three short fetches before a long hop that was ready first, so that what follows it comes later."""
    found = [Stage(1, 2.0), Stage(3, 1.0), Stage(1, 4.0, 0)]
    assert made(found, 1, 2, "dag") == [7.0] and made(found, 1, 2, "fifo") == [6.0]
