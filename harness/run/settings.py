"""The top-level keys of a run: those that belong to no block."""

import os
from dataclasses import dataclass

from harness.base.bounds import ROUNDS, SEED, WAIT, number, word
from harness.base.errors import InputError, choice
from harness.comm.meeting import RENDEZVOUS
from harness.comm.sparse import FORMS
from harness.comm.transport import TRANSPORTS
from harness.comm.wire import WIRES
from harness.core.kernels.spmm import check_kernel
from harness.core.order import ORDERS

NAME, PATH = 255, 3500  # bytes of a folder's name and of a path; Linux has 4096, and files lie below


@dataclass
class RunConfig:
    """Top-level keys, each with the text that `--help` shows. `workers` is the canonical key; `gpus` is taken
    for it wherever a config is read (`harness.results.identity.canonical`).

    workers    number of workers. Each takes a GPU of its own where there are enough, otherwise they share; on
               the CPU each is a process. `gpus` is another name for it
    epochs     number of training epochs
    seed       seed of the random numbers of weights, dropout, random partitions and random splits
    label      what tables call the run; null: the system's name
    rows       which rows training computes and exchanges: "all", or "needed", those that the logits of
               training vertices depend on, which is exact; null: the system's own choice
    features_wire  how features that are fetched once travel, without loss: "dense", "sparse" (the columns and
               values that are not 0) or "auto" (the smaller, message by message); null: the system's own
               choice
    device     "auto" (CUDA where there is a device), "cpu" or "cuda"
    threads    CPU threads per worker; null: cores / workers, at least 1
    kernel     sparse kernel: "auto" (numba on the CPU, torch on CUDA), "dgl", "numba", "torch",
               or "module.Class" of one's own
    order      which side of A X W is multiplied first: "transform" (X W), "aggregate" (A X) or "auto" (the
               cheaper, layer by layer, by what products cost as measured on this machine). Sparse features
               are transformed first in any case; supergnn aggregates first, and lean chooses by bytes
    transport  what carries messages unless each worker has a GPU of its own: "memory" (shared by the workers
               of one Linux host), "sockets" (gloo) or "auto" (memory where it can be). Workers with a GPU
               each use NCCL
    wire       "float32", or "bfloat16": rows of exchanges and broadcasts are rounded on their way, in both
               directions; sums (weights, batch norm) and evaluation are not
    rendezvous seconds that a worker waits for the others when a run starts
    patience   seconds without progress of any worker after which a run ends. Workers report none while they
               load a shard, evaluate or save a checkpoint, so it has to be longer than these; null: they wait
               for ever
    data_dir   folder of raw data sets, laid out as torch_geometric and ogb do
    results    folder that run folders go to
    cache      folder of cached graphs and shards
    run_dir    this run's folder; null: named by content under `results`
    checkpoint_every   epochs between checkpoints; 0: none
    keep_checkpoint   true: keep the state after the last epoch, which `halobench runs extend` goes on from
    fresh      true: start anew where the same run has finished or stopped before; its folder is kept beside
    stale      what to do with a run that other code computed: "show" it (where it was stopped, go on with it)
               and say so, or "rerun" it; its folder is then kept beside
    diverged   what to do once the loss or the logits are not finite numbers: "stop" the run, or "go_on"
    objective  what a sweeper such as Optuna's optimises: a value of summary.json, as best.test, final.val or
               bytes_epoch; null: the best validation score
    launch     "local", or "prepare" to write the run folder and print the torchrun command
    progress   "auto" (a bar on a terminal, lines elsewhere), "true" (a bar) or "false" (nothing)
    verbose    true: a run ends with all that `halobench runs show` says of it; false: with its score, bytes
               and time, and how they compare with exact training
    """

    workers: int = number(1, 1, 4096)
    epochs: int = number(200, 1, ROUNDS)
    seed: int = number(1, 0, SEED)
    label: str | None = None
    rows: str | None = word(None, "all", "needed")
    features_wire: str | None = word(None, *FORMS)
    device: str = "auto"
    threads: int | None = number(None, 1, 256)
    kernel: str = "auto"
    order: str = word(*ORDERS)
    transport: str = word(*TRANSPORTS)
    wire: str = word(*WIRES)
    rendezvous: float = number(RENDEZVOUS, 0, WAIT, above=True)
    patience: float | None = number(None, 0, WAIT, above=True)
    data_dir: str = "data"
    results: str = "results"
    cache: str = "results/cache"
    run_dir: str | None = None
    checkpoint_every: int = number(20, 0, ROUNDS)
    keep_checkpoint: bool = False
    fresh: bool = False
    stale: str = word("show", "rerun")
    diverged: str = word("stop", "go_on")
    objective: str | None = None
    launch: str = word("local", "prepare")
    progress: str = word("auto", "true", "false")
    verbose: bool = False

    def __post_init__(self) -> None:
        for key in ("data_dir", "results", "cache", "run_dir"):
            _check_path(key, getattr(self, key))
        if self.device == "gpu":
            raise InputError('device="gpu" is not known; did you mean "cuda"?')
        choice("device", self.device, ("auto", "cpu", "cuda"))
        check_kernel(self.kernel)


def _check_path(key: str, path: str | None) -> None:
    """InputError where no file system could have a folder with this path."""
    given = os.fsencode(path or "")
    if b"\0" in given or len(given) > PATH or max(map(len, given.split(b"/"))) > NAME:
        raise InputError(
            f"{key} cannot be a folder: give a path of at most {PATH} bytes and names of at most {NAME}"
        )
