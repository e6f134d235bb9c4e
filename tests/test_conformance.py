"""The checks that every system inherits: they pass for systems that hold them, and fail for those that do
not, each for its own fault.
"""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
import torch.distributed as dist

from harness import cli
from harness.core.system import Ready, System
from harness.dev.conformance import checks, plugin
from harness.dev.conformance.__main__ import main
from harness.dev.conformance.pool import WorkerPool
from harness.dev.conformance.subject import Subject
from harness.run.config import make_system
from tests.systems import EXACT


@dataclass
class Faulty(System):
    """Vanilla with a fault of choice."""

    fault: str = "none"
    features: str = "once"

    exact: ClassVar = {}

    def setup(self, context):
        super().setup(context)
        self.epochs = 0

    def before_epoch(self, epoch):
        self.epochs += 1

    def halo(self, layer, h):
        if self.fault == "forgets" and self.epochs < 6 and layer:
            return Ready(h.new_zeros(self.plan.num_halo, h.shape[1]))
        if self.fault == "inexact" and layer:
            return Ready(h.new_zeros(self.plan.num_halo, h.shape[1]))
        if self.fault == "chance":
            h = h + torch.rand((), generator=torch.Generator().manual_seed(torch.seed() % 2**40)).to(h.dtype)
        if self.fault == "uncounted" and layer == 1:
            self.comm.transport.all_reduce(torch.ones(3)).wait()
        if self.fault == "past":
            dist.all_reduce(torch.ones(3))
        return self.comm.exchange(self.plan, h, layer)

    def supports(self, run):
        return "no" if self.fault == "curt" and run.model == "gat" else None


def faulty(fault: str) -> Subject:
    block = {"_target_": f"{__name__}.Faulty", "fault": fault, "features": "once"}
    return Subject(block, make_system(block))


DROPPING = {"name": "gcn", "layers": 3, "hidden": 5, "dropout": 0.4}


def once_of(checked, pool):
    return checks.once.__wrapped__(checked, pool, DROPPING)


# Of a subject, the pool, and what trains the subject once.
CHECKS = {
    "exact": lambda s, pool, _: checks.test_at_its_exact_knob_it_is_full_graph_training(s, pool, "gcn", 3),
    "seed": lambda s, pool, once: checks.test_the_same_seed_gives_the_same_bits_and_another_seed_others(
        s, pool, once(), DROPPING
    ),
    "resume": lambda s, pool, once: checks.test_a_stopped_run_goes_on_bit_for_bit(s, pool, once(), DROPPING),
    "bytes": lambda s, pool, once: checks.test_every_byte_is_counted(once()),
    "refusal": lambda s, pool, _: checks.test_it_trains_a_model_or_refuses_it_in_a_sentence(s, pool, "gat"),
    "partition": lambda s, *_: checks.test_it_refuses_partitions_of_the_other_kind_and_knobs_that_it_lacks(s),
}


def test_a_system_that_holds_the_checks_passes_them(pool):
    checked = faulty("none")
    once = once_of(checked, pool)
    for check in CHECKS.values():
        check(checked, pool, lambda: once)


@pytest.mark.parametrize(
    "fault, name, said",
    [
        ("inexact", "exact", "Not equal to tolerance"),
        ("chance", "seed", "two runs of one seed differ"),
        ("forgets", "resume", r"state_dict\(\) lacks something"),
        ("uncounted", "bytes", r"\d+ bytes sent, \d+ counted"),
        ("past", "bytes", "InputError: torch.distributed.all_reduce sends bytes that are not counted"),
        ("curt", "refusal", "must say in one sentence why"),
    ],
)
def test_a_fault_fails_the_check_of_its_kind(pool, fault, name, said):
    checked = faulty(fault)
    with pytest.raises(AssertionError, match=said):
        CHECKS[name](checked, pool, lambda: once_of(checked, pool))


@pytest.mark.nightly(30)
def test_what_uses_no_remote_rows_is_found(pool):
    block = {"_target_": f"{__name__}.Unused"}
    with pytest.raises(AssertionError, match="it uses none of the rows that it has"):
        checks.test_it_uses_remote_rows(Subject(block, make_system(block)), pool)
    checks.test_it_uses_remote_rows(faulty("none"), pool)


@dataclass
class Unused(checks.NoRemoteRows):
    """The control, which does not say that it is one."""

    role: ClassVar[str] = ""


@pytest.mark.parametrize(
    "words, said",
    [
        (["system.bound=2"], "system is not given: add system=NAME"),
        (["system=vanila"], 'system="vanila" is not known; did you mean "vanilla"?'),
        (["system=sancus", "gpus=2"], '"gpus=2" is not part of a system: give system=NAME and its knobs'),
        (["system=sancus", "system.bound=-1"], "system.bound=-1.0 is out of range"),
    ],
)
def test_what_is_no_system_is_refused_in_a_sentence(words, said, refused):
    refused(main, words, said)


def test_a_knob_s_value_may_hold_spaces(monkeypatch):
    """The plugin reads the same words as the command."""
    words = ["system=distdgl", "system.fanouts=[5, 3]"]
    given: list[str] = []
    monkeypatch.setattr(pytest, "main", lambda options: given.extend(options) or pytest.ExitCode.OK)
    assert main(words) == 0
    options = {"--check": given[given.index("--check") + 1], "--check-config-dir": None}
    checked = plugin.checked.__wrapped__(SimpleNamespace(getoption=options.get))
    assert checked.block["fanouts"] == [5, 3]


@pytest.mark.nightly(200)
@pytest.mark.parametrize("name", sorted({name.split("/")[0] for name in EXACT}))
def test_every_system_of_ours_holds_the_checks(place, name):
    done = place.truly("-m", "harness", "check", f"system={name}")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_check_that_was_interrupted_has_not_passed(monkeypatch, capsys):
    """Ctrl-C ends the workers as well, to which the pool then has nothing to say."""
    pool = WorkerPool(1)
    pool.processes[0].kill()
    pool.processes[0].join()
    pool.close()
    monkeypatch.setattr(pytest, "main", lambda _: pytest.ExitCode.INTERRUPTED)
    assert cli.main(["check", "system=vanilla"]) == 130
    assert capsys.readouterr().err == "stopped by SIGINT\n"
