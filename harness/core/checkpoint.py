"""Checkpoints: a run goes on from the last one bit for bit, the system's caches included."""

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import torch
import xxhash

from harness.base import checksum, disk
from harness.base.checksum import Damaged
from harness.base.errors import InputError, writing
from harness.base.machine import check_machine
from harness.base.target import TREE
from harness.comm.comm import Comm
from harness.comm.service import ServiceLost
from harness.comm.transport import PeerLost
from harness.core.trainer import Trainer

# What reading a damaged file may raise.
UNREADABLE = (
    *(OSError, EOFError, RuntimeError, ValueError, pickle.UnpicklingError),
    *(KeyError, IndexError, TypeError, AttributeError),
)


LARGEST = 1 << 40  # number of an epoch or a start, which workers tell each other as a double


class Checkpoints:
    """`folder/epoch-000040/worker-0.pt`, one file per worker; a checkpoint counts once `folder/latest` names
    it. The one before it is kept, for the case that a file of the latest is damaged.

    A file has what `torch.save` writes, and a last line with the checksum of that. It says of which run,
    worker and epoch it is, so that a file under another's name is refused.

    run       names the run; files that another run wrote are refused
    started   how many times the run has been started before, as far as its trace knows; 0 but on worker 0
    attempt   how many times it has been started before, once `restore` has looked into `folder`
    keeper    whether this worker removes what is no longer needed from `folder`; None: worker 0 does
    """

    def __init__(
        self, folder: Path, rank: int, comm: Comm, run: str = "", started: int = 0, keeper: bool | None = None
    ):
        self.keeper = rank == 0 if keeper is None else keeper
        self.folder, self.rank, self.comm, self.run = folder, rank, comm, run
        self.attempt = started
        self.last = 0  # the epoch of the checkpoint that the run could go on from now

    def restore(self, trainer: Trainer) -> int:
        """Load the latest checkpoint into `trainer`, or the one before it where a file of the latest is
        missing or damaged; returns how many of the run's epochs it holds (0: there is none).

        Raises InputError where there are checkpoints and the run can go on from none of them, since their
        files are damaged or of another config.
        """
        latest = before = 0
        if self.rank == 0:
            with writing(self.folder, "give results=FOLDER on a disk with room"):
                self.folder.mkdir(parents=True, exist_ok=True)
                self.attempt = max(self.attempt, number_in(self.folder / "attempts"))
                latest = number_in(self.folder / "latest")
                self._write(self.folder / "attempts", str(self.attempt + 1))
            before = max((epoch for epoch in self._epochs() if epoch < latest), default=0)
        # Worker 0 looks and tells all: on several hosts the others may see an older state of a shared file
        # system.
        self.attempt, latest, before = map(int, self.comm.total([self.attempt, latest, before]))
        for epoch in (latest, before) if before else (latest,) if latest else ():
            state = self._agreed(epoch, before if epoch == latest else 0)
            if state is not None:
                try:
                    trainer.load_state_dict({"next_epoch": epoch, **state})
                except (InputError, PeerLost, ServiceLost):
                    raise  # what is fetched anew cannot be had, which is no fault of the checkpoint
                except (RuntimeError, KeyError, ValueError, TypeError) as error:
                    check_machine(error, self.folder)
                    if type(trainer.system).__module__.partition(".")[0] not in TREE:
                        raise  # may as well be a fault of a system of one's own, whose author needs to see it
                    said = (str(error).splitlines() or [""])[0]
                    raise InputError(
                        f"{self.folder} is of another run than the config beside it ({type(error).__name__}:"
                        f" {said}); start the run anew with fresh=true"
                    ) from error
                self.last = epoch
                return epoch
        return 0

    def _agreed(self, epoch: int, before: int) -> dict[str, Any] | None:
        """This worker's state in the checkpoint of `epoch`, where all workers find it whole. Where one does
        not, None if there is a checkpoint `before` to go on from, else InputError.
        """
        state: dict[str, Any] = {}
        wrong: Exception | None = None
        try:
            state = self._read(epoch)
        except UNREADABLE as error:
            check_machine(error, self._path(epoch))
            wrong = error
        weights = _mark(state.get("model", {}))
        same = state.pop("of", {}).get("same_weights")
        together, damaged = self.comm.total([weights, wrong is not None])
        if not damaged:
            # Files that are whole may still be of different starts of a run.
            if same and together != weights * self.comm.size:
                wrong = Damaged("the workers' weights are not the same")
            (damaged,) = self.comm.total([wrong is not None])
        if not damaged:
            return state
        path = self._path(epoch)
        if wrong is not None and not before:
            raise _damaged(path, wrong, self.folder)
        if wrong is not None:
            print(
                f"note: {path} is {_state(wrong)}; the run goes on from the checkpoint before it, after"
                f" {before} epochs",
                file=sys.stderr,
            )
        elif not before:
            self.comm.barrier()  # which ends when the worker that found it damaged does
        return None

    def _read(self, epoch: int) -> dict[str, Any]:
        path = self._path(epoch)
        checksum.check_sealed(path)
        state = torch.load(path, weights_only=True, map_location=self.comm.device)
        if not isinstance(state, dict):
            raise Damaged("it holds no state")
        own = {"run": self.run, "rank": self.rank, "epoch": epoch}
        for name, value in own.items():
            if state["of"][name] != value:
                raise Damaged(f"it is of {name} {state['of'][name]}, not {value}")
        return state

    def save(self, trainer: Trainer, next_epoch: int, settle: Callable[[], object] = lambda: None) -> None:
        """Write a checkpoint from which a run goes on at `next_epoch`; all but it and the one before it are
        removed.

        settle   called before it counts, when the operations that the state waited for are through

        Raises InputError where it cannot be written: the one before it still counts then.
        """
        state = trainer.state_dict()
        settle()
        weights = _mark(state.get("model", {}))
        same = self.comm.total([weights]) == [weights * self.comm.size]
        of = {"run": self.run, "rank": self.rank, "epoch": next_epoch, "same_weights": same}
        path = self._path(next_epoch)
        if self.keeper:  # before anything is written: there is room for two, as for any run
            for epoch in set(self._epochs()) - {self.last, next_epoch}:
                disk.remove_tree(self._path(epoch).parent, ignore_errors=True)
        with writing(path, "make room: the same command goes on from the last checkpoint"):
            path.parent.mkdir(parents=True, exist_ok=True)
            with disk.replacing(path, buffering=0) as file:
                _save({**state, "of": of}, file)
                file.write(checksum.line_of(Path(file.name)).encode())
            self.comm.barrier()
            if self.rank == 0:
                self._write(self.folder / "latest", str(next_epoch))
        self.last = next_epoch

    def clear(self) -> None:
        """Remove everything, once the run is complete."""
        disk.remove_tree(self.folder, ignore_errors=True)

    def _path(self, next_epoch: int) -> Path:
        return self.folder / f"epoch-{next_epoch:06d}" / f"worker-{self.rank}.pt"

    def _epochs(self) -> list[int]:
        """Of which epochs there are checkpoints, whole or not."""
        names = (path.name.removeprefix("epoch-") for path in self.folder.glob("epoch-*"))
        return [int(name) for name in names if name.isdecimal()]

    @staticmethod
    def _write(path: Path, text: str) -> None:
        with disk.replacing(path, "w") as file:
            file.write(text)


def _save(state: dict[str, Any], file: IO[bytes]) -> None:
    """torch.save into an unbuffered file, with the disk's own error where it cannot be written, which torch
    hides behind another."""
    failed: list[OSError] = []

    def write(data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:  # the system takes a part of what it is given: at most 2 GiB at a time
                left = left[file.write(left) :]
        except OSError as error:
            failed.append(error)
            raise

    try:
        torch.save(state, SimpleNamespace(write=write, flush=lambda: None))
    except RuntimeError:
        if failed:
            raise failed[0] from None
        raise


def _mark(weights: dict[str, torch.Tensor]) -> int:
    """40 bits of a hash of the weights, of which a double holds the sum over thousands of workers exactly."""
    hashed = xxhash.xxh3_64()
    for name in sorted(weights):
        hashed.update(name.encode())
        hashed.update(weights[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return hashed.intdigest() >> 24


def number_in(path: Path) -> int:
    """What `latest` or `attempts` in a folder of checkpoints says; 0 where it is not there. InputError where
    it is damaged.
    """
    try:
        number = int(path.read_text()) if path.exists() else 0
        if not 0 <= number < LARGEST:
            raise Damaged(f"it says {str(number)[:20]}")
        return number
    except (OSError, ValueError) as error:
        check_machine(error, path)
        raise _damaged(path, error, path.parent) from None


def _damaged(path: Path, error: Exception, folder: Path) -> InputError:
    return InputError(
        f"{path} is {_state(error)}; delete the folder {folder} or start the run anew with fresh=true"
    )


def _state(error: Exception) -> str:
    """What an error says of a file."""
    if isinstance(error, FileNotFoundError):
        return "missing"
    reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
    return f"damaged ({reason})"
