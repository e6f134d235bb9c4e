"""Checkpoints: a run goes on from the last one bit for bit, the system's caches included."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path

import torch

from harness.check import InputError
from harness.comm.comm import Comm
from harness.core.trainer import Trainer


class Checkpoints:
    """`folder/epoch-000040/worker-0.pt`, one file per worker; a checkpoint counts once `folder/latest` names
    it.

    attempt   how many times this run has been started before
    """

    def __init__(self, folder: Path, rank: int, comm: Comm):
        self.folder, self.rank, self.comm = folder, rank, comm
        self.attempt = 0

    def restore(self, trainer: Trainer) -> int:
        """Load the latest checkpoint into `trainer`; returns how many of the run's epochs it holds (0: none).

        Raises InputError where a file of it is missing or damaged.
        """
        first = 0
        if self.rank == 0:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.attempt, first = self._number("attempts"), self._number("latest")
            self._write(self.folder / "attempts", str(self.attempt + 1))
        # Worker 0 looks, all hear: on several hosts the others may see an older state of a shared file
        # system.
        self.attempt, first = map(int, self.comm.total([self.attempt, first]))
        if first:
            try:
                state = torch.load(self._path(first), weights_only=True, map_location=self.comm.device)
            except (OSError, EOFError, RuntimeError, pickle.UnpicklingError, KeyError, ValueError) as error:
                raise self._damaged(self._path(first), error) from None
            trainer.load_state_dict({"next_epoch": first, **state})
        return first

    def save(self, trainer: Trainer, next_epoch: int) -> None:
        """Write a checkpoint from which a run goes on at `next_epoch`; older ones are removed once it is
        complete.
        """
        path = self._path(next_epoch)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        torch.save(trainer.state_dict(), part)
        os.replace(part, path)
        self.comm.barrier()
        if self.rank == 0:
            self._write(self.folder / "latest", str(next_epoch))
            for old in self.folder.glob("epoch-*"):
                if old != path.parent:
                    shutil.rmtree(old, ignore_errors=True)

    def clear(self) -> None:
        """Remove everything, once the run is complete."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, next_epoch: int) -> Path:
        return self.folder / f"epoch-{next_epoch:06d}" / f"worker-{self.rank}.pt"

    def _number(self, name: str) -> int:
        path = self.folder / name
        try:
            return int(path.read_text()) if path.exists() else 0
        except (OSError, ValueError) as error:
            raise self._damaged(path, error) from None

    def _damaged(self, path: Path, error: Exception) -> InputError:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        return InputError(
            f"{path} is damaged ({reason}); delete the folder {self.folder} or give fresh=true to start anew"
        )

    @staticmethod
    def _write(path: Path, text: str) -> None:
        part = path.with_name(path.name + ".part")
        part.write_text(text)
        os.replace(part, path)
