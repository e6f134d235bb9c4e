"""Clusters: every preset is one, what is wrong with one is said in a sentence, times are relative to the
slowest.
"""

import warnings

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.core.cluster import TIMES, Cluster, Device, relative
from harness.core.cluster_measure import measure, pooled
from harness.results import files
from harness.run import config
from harness.run.config import make_system
from tests import jobs, systems
from tests.conftest import ROOT

PRESETS = sorted(
    p.relative_to(ROOT / "conf" / "cluster").with_suffix("").as_posix()
    for p in (ROOT / "conf" / "cluster").rglob("*.yaml")
)


def test_measuring_a_device_says_nothing_of_torchs_own():
    torch.set_warn_always(True)  # else torch tells a process once
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert measure(torch.device("cpu"), 0, 1).spmm_s > 0
    finally:
        torch.set_warn_always(False)


def test_every_preset_is_a_cluster_for_as_many_workers_as_it_has_devices():
    plain = systems.asked().composed  # of which a preset is one block
    for name in PRESETS:
        preset = yaml.safe_load((ROOT / "conf" / "cluster" / f"{name}.yaml").read_text())
        run = config.check({**plain, "cluster": preset})
        devices = len(run.cluster.devices)
        assert run.cluster.name == name and run.cluster.measured == (name == "measured") == (not devices)
        if devices:
            assert config.check({**run.composed, "workers": devices}).settings.workers == devices
    with pytest.raises(InputError, match=f"={devices + 1} is more than cluster={name} has devices"):
        config.check({**run.composed, "workers": devices + 1})


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=8))
def test_times_are_relative_to_the_slowest(times):
    shares = relative([Device(mm_s=time) for time in times], "mm_s")
    assert max(shares) == 1.0 and all(0 < share <= 1 for share in shares)
    assert sorted(range(len(times)), key=times.__getitem__) == sorted(
        range(len(times)), key=shares.__getitem__
    )
    assert relative([Device() for _ in times], "mm_s") == [1.0] * len(times)


def test_devices_of_one_kind_have_the_medians_of_their_kind():
    times = lambda at: {name: at + place for place, name in enumerate(TIMES)}
    measured = [("a", 1.0), ("b", 70.0), ("a", 9.0), ("a", 2.0)]
    found = pooled(
        [
            Device(kind=kind, host=at % 2, memory_gb=at + 1, **times(time))
            for at, (kind, time) in enumerate(measured)
        ]
    )
    want = [("a", 2.0), ("b", 70.0), ("a", 2.0), ("a", 2.0)]
    assert found == [
        Device(kind=kind, host=at % 2, memory_gb=at + 1, **times(time))
        for at, (kind, time) in enumerate(want)
    ]


@pytest.mark.parametrize(
    "needs,name,knobs",
    [
        (True, "capgnn", {}),
        (True, "capgnn", {"rapa": False}),
        (True, "capgnn", {"jaca": False}),
        (True, "capgnn", {"rapa": False, "local_capacity": 5}),
        (True, "capgnn", {"rapa": False, "global_capacity": 5}),
        (False, "capgnn", {"rapa": False, "jaca": False}),
        (False, "capgnn", {"rapa": False, "capacity": 5}),
        (False, "capgnn", {"rapa": False, "local_capacity": 0, "global_capacity": 5}),
        (False, "vanilla", {}),
    ],
)
def test_devices_are_needed_to_balance_workers_and_to_size_a_cache_that_has_no_size(needs, name, knobs):
    assert make_system(systems.block(name, **knobs)).traits().devices == needs


def test_measured_devices_are_kept_and_a_resumed_run_has_those_it_began_with(pool, tmp_path):
    run, path = systems.asked("system=capgnn", "gpus=2"), tmp_path / "devices.json"
    assert run.cluster.name == "measured", "where nothing is said"
    first, second = pool.run(jobs.devices, 2, run, tmp_path)
    assert first == second and len(first.devices) == 2 and first.host_memory_gb > 0
    for device in first.devices:
        assert device.memory_gb == pytest.approx(first.host_memory_gb / 2), (
            "shared by the workers of the host"
        )
        assert all(getattr(device, name) > 0 for name in TIMES)
    assert all(relative(first.devices, name) == [1.0, 1.0] for name in TIMES), "both are the same processor"
    kept = files.read_json(path)
    kept["devices"][1]["mm_s"] = 1234.5
    files.write_json_atomic(path, kept)
    assert [cluster.devices[1].mm_s for cluster in pool.run(jobs.devices, 2, run, tmp_path)] == [
        1234.5,
        1234.5,
    ]


def test_devices_that_are_named_or_not_needed_are_not_measured(pool, tmp_path):
    named = systems.asked("system=capgnn", "cluster=capgnn/x4", "gpus=2")
    for cluster in pool.run(jobs.devices, 2, named, tmp_path):
        assert cluster.devices == named.cluster.devices[:2]
    assert pool.run(jobs.devices, 2, systems.asked("system=vanilla", "gpus=2"), tmp_path) == [None, None]
    assert not list(tmp_path.iterdir())


def test_what_is_wrong_is_named():
    with pytest.raises(InputError, match="lacks mm_s of b"):
        relative([Device(kind="a", mm_s=1.0), Device(kind="b")], "mm_s")
    with pytest.raises(InputError, match="number hosts from 0"):
        Cluster(devices=[Device(host=1)])
