"""WordNet 3.1 (Princeton): synsets, pointers between them, words of glosses; lexicographer files: classes."""

from harness.data import npz
from harness.data.sets import RealSet

SET = RealSet(
    folders=("wordnet",),
    files=("wordnet.npz",),
    read=npz.read,
    vertices=117_791, edges=368_166, features=3_237, classes=45,
    own_split=False, size=1_717_133,
    sha256={"wordnet.npz": "1feca862ca9227b3219baface733515fd917ca216ddf47738d4d29e4a1de84c6"},
    origin="made of WordNet's database files (https://wordnet.princeton.edu)",
    licence="WordNet's",
)  # fmt: skip
