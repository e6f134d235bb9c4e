"""What goes on beside a round of the campaign, in a thread of this process."""

import threading
from typing import Any


class Beside:
    """`go_on` runs from entering to leaving: it ends soon after `over` is set."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.go_on, daemon=True)

    def __enter__(self) -> Any:
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.over.set()
        self.thread.join()

    def go_on(self) -> None:
        raise NotImplementedError
