"""VARCO equals its paper's equations, epoch by epoch, on random graphs, columns shared; its bytes."""

from __future__ import annotations

import numpy as np

from systems.varco import columns


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
