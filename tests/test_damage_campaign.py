"""Damage to every kind of file that a stopped run left; the same command: a sentence, or the same bits."""

from __future__ import annotations

import random
import shutil
import signal
from pathlib import Path

import pytest
from pandas.testing import assert_frame_equal

from tests.launching import losses

KINDS = (
    *("checkpoints/epoch-*/worker-*.pt", "checkpoints/latest", "checkpoints/attempts"),
    *("config.yaml", "shards.json", "resolved.json", "environment.json"),
)
CACHED = (
    "shards/*/worker-*.safetensors",
    "shards/*/stats.json",
    "shards/*/spec.json",
    "graphs/*/*.safetensors",
)


def damage(path: Path, others: list[Path], draw: random.Random) -> str:
    """Damage a file, as a disk or a hand would; returns how."""
    how = draw.choice(["flip", "cut", "zeros", "empty", "missing", "swap"])
    content = bytearray(path.read_bytes())
    at = draw.randrange(len(content))
    if how == "flip":
        content[at] ^= 1 << draw.randrange(8)
    elif how in ("cut", "zeros"):
        content[at:] = b"\0" * (len(content) - at) * (how == "zeros")
    elif how == "swap":
        content = bytearray(draw.choice(others).read_bytes())
    path.unlink()
    if how != "missing":
        path.write_bytes(b"" if how == "empty" else content)
    return how


@pytest.mark.nightly(240)
def test_a_stopped_run_with_a_damaged_file_is_refused_or_ends_with_the_same_bits(place, seed=1, rounds=30):
    command = (*place.trouble, "system.how=kill", "system.epoch=5")
    module, cache = place.folder / "modules" / "trouble.py", place.folder / "cache"
    assert place.run(*command).code == 128 + signal.SIGKILL
    (run_dir,) = place.runs()
    stopped, kept = place.folder / "stopped", place.folder / "cached"
    shutil.copytree(run_dir, stopped)
    shutil.copytree(cache, kept)
    kills, draw, outcomes = module.read_text(), random.Random(seed), []
    module.write_text(kills.replace('self.how == "kill"', 'self.how == "never"'))
    try:
        assert place.run(*command).code == 0
        expected = losses(run_dir)
        for number in range(rounds):
            for folder, whole in ((run_dir, stopped), (cache, kept)):
                shutil.rmtree(folder)
                shutil.copytree(whole, folder)
            pattern = draw.choice(KINDS + CACHED)
            files = sorted((cache if pattern in CACHED else run_dir).glob(pattern))
            path = draw.choice(files)
            what = f"round {number} of seed {seed}: {damage(path, files, draw)} {path}"
            done = place.run(*command)
            assert "Traceback" not in done.err, f"{what}: {done.err}"
            if done.code == 0:
                assert_frame_equal(losses(run_dir), expected, check_exact=True)
            else:
                told = [line for line in done.err.splitlines() if not line.startswith("note: ")]
                assert done.code == 2 and len(told) == 1 and told[0].startswith("error: "), (
                    f"{what}: {done.err}"
                )
            outcomes.append(done.code)
    finally:
        module.write_text(kills)
        shutil.rmtree(stopped)
        shutil.rmtree(kept)
    assert {0, 2} <= set(outcomes)
