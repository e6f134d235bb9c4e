"""VARCO: how many columns it keeps, and which."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from systems.varco import Varco, columns
from tests.oracles import varco


def test_the_columns_kept_by_hand():
    # r_t = 4 - 6 t / 6
    assert [varco.kept(6, t, 6, 4, 2) for t in range(6)] == [2, 2, 3, 6, 6, 6]
    # r_t = 128 - 635 t / 10: the paper's, in ten epochs
    assert [varco.kept(256, t, 10, 128, 5) for t in range(4)] == [2, 4, 256, 256]


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 128), st.integers(0, 8), st.data())
def test_the_system_keeps_as_many(width, epochs, compression, slope, data):
    system = Varco(compression=float(compression), slope=float(slope))
    system.epochs, system.epoch = epochs, data.draw(st.integers(0, epochs - 1))
    assert system.count(width) == varco.kept(width, system.epoch, epochs, compression, slope)


def test_one_column_is_kept_whatever_the_compression():
    system = Varco(compression=2.0**31 - 1, slope=0.0)
    system.epochs, system.epoch = 2, 0
    assert system.count(1) == 1


def test_columns_are_drawn_anew_for_every_epoch_and_layer():
    """Ascending, as many as asked for, each of 12 about as often as the others."""
    drawn = [columns(3, epoch, layer, 12, 4).tolist() for epoch in range(200) for layer in range(3)]
    assert all(some == sorted(set(some)) and len(some) == 4 for some in drawn)
    often = np.bincount(np.concatenate(drawn), minlength=12)
    assert len(often) == 12 and (abs(often - 200) < 6 * np.sqrt(200 * 2 / 3)).all()
    # Of the 495 choices 600 draws meet about 348; 200 would meet 165.
    assert len(set(map(tuple, drawn))) > 300
    assert [columns(4, epoch, 0, 12, 4).tolist() for epoch in range(9)] != drawn[:27:3]
    assert columns(3, 0, 0, 12, 12).tolist() == list(range(12))


def test_a_rate_that_stays_follows_no_number_of_epochs():
    rates = [(128.0, 5.0), (128.0, 0.0), (1.0, 5.0)]
    follow = [Varco(compression=c, slope=slope).traits().follows_epochs for c, slope in rates]
    assert follow == [True, False, False]
