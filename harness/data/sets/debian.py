"""Packages of Debian 12 (main, amd64, as of 2026-07), first alternatives of their Depends, Pre-Depends and
Recommends; words of their short descriptions and tags; sections as classes."""

from harness.data import npz
from harness.data.sets import RealSet

SET = RealSet(
    folders=("debian",),
    files=("debian.npz",),
    read=npz.read,
    vertices=63_436, edges=549_900, features=1_122, classes=58, homophily=0.468,
    own_split=False, size=1_156_858,
    sha256={"debian.npz": "7f45287d096fc6d34a72d604b5b2785bc6b14294254762cadbc8bd9d9771bde1"},
    origin="made of Debian's package lists",
    licence="facts about packages",
)  # fmt: skip
