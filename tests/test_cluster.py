"""Clusters: every preset is one, what is wrong with one is said in a sentence, times are relative to the slowest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hydra import compose, initialize_config_dir

from harness import config
from harness.__main__ import CONF
from harness.check import InputError
from harness.cluster.config import Cluster, Device, relative
from tests.conftest import ROOT

PRESETS = sorted(p.relative_to(ROOT / "conf" / "cluster").with_suffix("").as_posix() for p in (ROOT / "conf" / "cluster").rglob("*.yaml"))
SIZES = {"cdfgnn": None, "digest": 8, "measured": 0, "pscgcn": 6, **{f"capgnn/x{n}": n for n in range(2, 9)}}


def composed(*overrides: str) -> config.Run:
    with initialize_config_dir(CONF, version_base="1.3"):
        return config.check(compose("config", overrides=list(overrides)))


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_a_cluster_of_its_papers_size(name):
    cluster = composed(f"cluster={name}").cluster
    assert cluster.name == name and cluster.measured == (name == "measured")
    assert SIZES[name] is None or len(cluster.devices) == SIZES[name]
    if cluster.devices:
        gpus = len(cluster.devices)
        assert composed(f"cluster={name}", f"gpus={gpus}").settings.gpus == gpus
        with pytest.raises(InputError, match=f"gpus={gpus + 1} is more than cluster={name} has devices"):
            composed(f"cluster={name}", f"gpus={gpus + 1}")


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=8))
def test_times_are_relative_to_the_slowest(times):
    shares = relative([Device(mm_s=time) for time in times], "mm_s")
    assert max(shares) == 1.0 and all(0 < share <= 1 for share in shares)
    assert sorted(range(len(times)), key=times.__getitem__) == sorted(range(len(times)), key=shares.__getitem__)
    assert relative([Device() for _ in times], "mm_s") == [1.0] * len(times)


def test_what_is_wrong_is_named():
    with pytest.raises(InputError, match="lacks mm_s of b"):
        relative([Device(kind="a", mm_s=1.0), Device(kind="b")], "mm_s")
    with pytest.raises(InputError, match="number hosts from 0"):
        Cluster(devices=[Device(host=1)])
    with pytest.raises(InputError, match="spmm_s=0"):
        Device(spmm_s=0)
