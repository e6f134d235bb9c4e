"""What every round is held to: memory, time, and no file but where the commands were told to put theirs."""

import contextlib
import time
from pathlib import Path

import psutil

from tests.launching import Place
from tests.torture.beside import Beside
from tests.torture.given import MOST
from tests.torture.tally import Tally

LONGEST = 300.0  # seconds that a command may take on a slow machine
# What a place holds beside what the campaign's own files are called there.
OWN = ("results", "cache", "hold", "kept", "out-", "err-", "halobench-scratch-")


class Watch(Beside):
    """Looks at all that this process starts from now on, until it is left. A command that takes too long is
    killed.

    folder   where the place and the rest of the campaign lie, and `home`, that of the user
    """

    def __init__(self, place: Place, folder: Path, tally: Tally):
        super().__init__()
        self.place, self.folder, self.tally = place, folder, tally
        self.known = set(self._files())
        self.others = set(psutil.Process().children(recursive=True))  # as the workers of a suite's pool

    def go_on(self) -> None:
        of, began = None, 0.0
        while not self.over.wait(0.2):
            going = self.place.going
            if going is not of:
                of, began = going, time.monotonic()
            family = set(psutil.Process().children(recursive=True)) - self.others
            taken = 0
            for process in family:
                with contextlib.suppress(psutil.Error):
                    taken += process.memory_info().rss
            self.tally.memory = max(self.tally.memory, taken)
            if going is not None and time.monotonic() - began > LONGEST:
                self.tally.note("hang", None, f"{going.process} after {LONGEST} s: {going.told()}")
                for process in family:
                    with contextlib.suppress(psutil.Error):
                        process.kill()

    def check(self) -> None:
        """After a round."""
        if self.tally.memory > MOST * 1000:
            self.tally.note("memory", None, f"{self.tally.memory} bytes")
        if strange := [path for path in self._files() if path not in self.known]:
            self.tally.note("file outside", None, f"{strange}")
            self.known.update(strange)

    def _files(self) -> list[Path]:
        """Those that no command should add to."""
        beside = [path for path in self.place.folder.iterdir() if not path.name.startswith(OWN)]
        return [*beside, *self.place.folder.parent.iterdir(), *(self.folder / "home").rglob("*")]
