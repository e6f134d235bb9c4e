"""A checkpoint is whole and the run's own, or is left for the one before it, or is refused in a sentence."""

import resource
import shutil
import signal
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.base.machine import LimitReached
from harness.comm.service import ServiceLost
from harness.comm.transport import PeerLost
from harness.core.checkpoint import Checkpoints, _save
from systems.vanilla import Vanilla


class Alone:
    """A group of one worker."""

    device, size = torch.device("cpu"), 1

    def barrier(self):
        pass

    def total(self, values):
        return [float(value) for value in values]


class Pretended(Alone):
    """A group of two whose other worker holds other weights."""

    size = 2

    def total(self, values):
        return [2 * float(value) + 1 if value > 2**20 else float(value) for value in values]


def state(epoch: int) -> dict:
    return {"model": {"w": torch.full((3, 2), float(epoch))}, "epochs": epoch}


def save(folder, *epochs: int, run: str = "mine", rank: int = 0, comm=None) -> Checkpoints:
    saved = Checkpoints(folder, rank, comm or Alone(), run)
    for epoch in epochs:
        made = state(epoch)
        saved.save(SimpleNamespace(state_dict=made.copy), epoch)
    return saved


def restored(folder, comm=None) -> dict:
    """What a trainer gets from the run's checkpoints; nothing where there is none."""
    loaded: dict = {}
    first = Checkpoints(folder, 0, comm or Alone(), "mine").restore(
        SimpleNamespace(load_state_dict=loaded.update)
    )
    assert first == loaded.get("epochs", 0)
    return loaded


def file_of(folder, epoch: int):
    return folder / f"epoch-{epoch:06d}" / "worker-0.pt"


def refused(folder, comm=None) -> str:
    with pytest.raises(InputError) as caught:
        restored(folder, comm)
    message = str(caught.value)
    assert "\n" not in message and message.endswith("or start the run anew with fresh=true")
    return message


def test_the_two_latest_are_kept(tmp_path):
    save(tmp_path, 2, 4, 6, 8)
    assert sorted(path.name for path in tmp_path.glob("epoch-*")) == ["epoch-000006", "epoch-000008"]
    assert torch.equal(restored(tmp_path)["model"]["w"], state(8)["model"]["w"])


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints")
    save(folder, 2, 4)
    return folder


@given(data=st.data())
def test_any_damage_to_the_latest_leaves_the_one_before(two, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("damaged") / "checkpoints"
    shutil.copytree(two, folder)
    path = file_of(folder, 4)
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[at:]
    path.write_bytes(content)
    assert restored(folder)["epochs"] == 2
    shutil.rmtree(folder / "epoch-000002")
    assert f"{path} is damaged (" in refused(folder)


@pytest.mark.parametrize(
    "run, rank, epoch, says",
    [
        ("another", 0, 4, "it is of run another, not mine"),
        ("mine", 1, 4, "it is of rank 1, not 0"),
        ("mine", 0, 3, "it is of epoch 3, not 4"),
    ],
)
def test_a_whole_checkpoint_of_another_run_worker_or_epoch_is_refused(tmp_path, run, rank, epoch, says):
    save(tmp_path / "own", 4)
    save(tmp_path / "other", epoch, run=run, rank=rank)
    (found,) = (tmp_path / "other").glob("epoch-*/*.pt")
    shutil.copy(found, file_of(tmp_path / "own", 4))
    assert says in refused(tmp_path / "own")


def test_workers_that_do_not_hold_the_same_weights_are_refused_but_where_they_never_did(tmp_path):
    save(tmp_path, 4)
    assert "the workers' weights are not the same" in refused(tmp_path, Pretended())
    save(tmp_path / "other", 4, comm=Pretended())
    assert restored(tmp_path / "other", Pretended())["epochs"] == 4


@pytest.mark.parametrize(
    "name, text, says",
    [
        ("latest", "6", "epoch-000006/worker-0.pt is missing"),
        ("latest", "", "latest is damaged (invalid literal"),
        ("attempts", "-5", "attempts is damaged (it says -5)"),
        ("latest", "1" + "0" * 400, "latest is damaged (it says 10000000000000000000)"),
        ("attempts", "9" * 5000, "attempts is damaged (Exceeds the limit"),
    ],
)
def test_an_edited_number_is_refused_in_one_sentence(tmp_path, name, text, says):
    save(tmp_path, 8)
    (tmp_path / name).write_text(text)
    assert says in refused(tmp_path)


def test_latest_beyond_the_last_checkpoint_goes_on_from_that(tmp_path, capsys):
    save(tmp_path, 4)
    (tmp_path / "latest").write_text("400")
    assert restored(tmp_path)["epochs"] == 4
    assert "epoch-000400/worker-0.pt is missing; the run goes on from" in capsys.readouterr().err


def test_starts_that_the_trace_knows_of_are_counted_where_the_file_is_lost(tmp_path):
    save(tmp_path, 4)
    again = Checkpoints(tmp_path, 0, Alone(), "mine", started=3)
    again.restore(SimpleNamespace(load_state_dict=lambda _: None))
    assert again.attempt == 3 and (tmp_path / "attempts").read_text() == "4"


def test_a_checkpoint_that_does_not_fit_is_one_sentence_and_the_one_before_it_counts(tmp_path):
    saved = save(tmp_path, 2)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    large = {"model": {}, "epochs": 4, "cache": torch.zeros(10_000)}
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(InputError, match=r"worker-0.pt cannot be written: File too large; make room"):
            saved.save(SimpleNamespace(state_dict=lambda: large), 4)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert restored(tmp_path)["epochs"] == 2 and not list(tmp_path.glob("*/*.part"))


def test_the_state_of_another_run_is_refused_in_one_sentence(tmp_path):
    save(tmp_path, 1)
    for error in (RuntimeError("size mismatch for w\nand more"), KeyError("momentum")):

        def load(state, error=error):
            raise error

        said = "is of another run than the config beside it .*anew with fresh=true"
        trainer = SimpleNamespace(load_state_dict=load, system=Vanilla())
        with pytest.raises(InputError, match=said):
            Checkpoints(tmp_path, 0, Alone(), "mine").restore(trainer)
        trainer.system = SimpleNamespace()  # of no module here: as it is, for its author to see where
        with pytest.raises(type(error)):
            Checkpoints(tmp_path, 0, Alone(), "mine").restore(trainer)


@pytest.mark.parametrize(
    "error, kind, says",
    [
        (InputError("a store that is not there"), InputError, "a store that is not there"),
        (PeerLost("worker 1 is gone"), PeerLost, "worker 1 is gone"),
        (ServiceLost("the store is gone"), ServiceLost, "the store is gone"),
        (RuntimeError("can't allocate memory: 8 bytes"), LimitReached, ".* cannot be read now: .* memory"),
    ],
)
def test_what_stops_a_resumed_run_beside_its_checkpoint_is_not_blamed_on_that(tmp_path, error, kind, says):
    save(tmp_path, 1)

    def load(state):
        raise error

    trainer = SimpleNamespace(load_state_dict=load, system=Vanilla())
    with pytest.raises(kind, match=f"^{says}$"):
        Checkpoints(tmp_path, 0, Alone(), "mine").restore(trainer)


def test_a_state_is_whole_where_the_system_takes_it_in_parts(tmp_path):
    with open(tmp_path / "state", "wb") as file:
        _save(state(4), SimpleNamespace(write=lambda data: file.write(data[:100])))
    assert torch.equal(torch.load(tmp_path / "state")["model"]["w"], state(4)["model"]["w"])
