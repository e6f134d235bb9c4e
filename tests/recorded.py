"""What the tests of the replay share: a run of given numbers, and its replay."""

from pathlib import Path
from typing import Any

from harness.comm.recorder import Epoch, Span
from harness.model.replay.engine import Timeline
from harness.model.replay.settings import parse
from harness.model.replay.times import Times, times_of
from harness.results import writer
from harness.results.reader import Trace
from tests import traces

MB = 10**6
APART = ["cluster=cdfgnn", "per_host=1", "cluster.between.gbytes_per_s=1", "cluster.between.latency_us=0"]


def recorded(
    folder: Path,
    work: list[list[float]],
    *,
    size: int = MB,
    tail: float = 0.003,
    late: float = 0.0,
    cores: int = 4,
    label: str | None = None,
    lag: bool = False,
    overlaps: bool = False,
    cluster: dict[str, Any] | None = None,
) -> Path:
    """A run of given numbers: in epoch e worker k computes work[e][k] s, packs 1 ms, posts an exchange of
    `size` bytes to every other, computes 2 ms and waits, until the last has posted and `tail` after that.
    Then comes a sum of 1000 bytes. Worker k begins every epoch k * late after worker 0.

    lag       the exchange is waited for in the next epoch only
    overlaps  whether its system says that its exchanges overlap
    cluster   of its config, where that is another than the measured one
    """
    P = len(work[0])
    config = traces.config(gpus=P, epochs=len(work), label=label, **({"cluster": cluster} if cluster else {}))
    traces.prepare(folder, config, cores, role="reference", overlaps=overlaps)
    out = [writer.TraceWriter(folder, k, 0) for k in range(P)]
    now = 100.0
    for e, own in enumerate(work):
        peers = [tuple(p for p in range(P) if p != k) for k in range(P)]
        posted = [now + k * late + own[k] + 0.001 for k in range(P)]
        through = max(posted) + tail
        waited = [max(through if not lag else 0.0, at + 0.002) for at in posted]
        summed = max(waited) + 0.0005
        for k, trace in enumerate(out):
            begin, made = now + k * late, Epoch(e)
            ids = f"{e}:1", f"{e}:2"
            line = [
                ("compute", "forward", 0, begin, posted[k] - 0.001, ""),
                ("rest", "pack", 0, posted[k] - 0.001, posted[k], ""),
                ("compute", "forward", 0, posted[k], posted[k] + 0.002, ""),
                ("wait", "exchange", 0, posted[k] + 0.002, waited[k], f"{e - 1}:1" if lag else ids[0]),
                ("wait", "all_reduce", -1, waited[k], summed, ids[1]),
            ]
            for kind, name, layer, start, end, id in line:
                cpu = 0.0 if kind == "wait" else (end - start) / 2
                flops = 1000 if name == "forward" else 0
                made.spans.append(Span(kind, name, layer, start, end, cpu=cpu, id=id, flops=flops))
            sizes = (size,) * (P - 1)
            made.spans += [
                Span("comm", "exchange", 0, posted[k], through, bytes=sum(sizes), peers=peers[k], id=ids[0],
                     route="pairs", peer_bytes=sizes),
                Span("comm", "all_reduce", -1, waited[k], summed, bytes=1000, peers=((k + 1) % P,), id=ids[1],
                     blocking=True, route="ring", peer_bytes=(1000,)),
            ]  # fmt: skip
            made.train, made.cpu = summed - begin, 0.5 * (summed - begin)
            for p in peers[k]:
                made.sent[0, "forward", "halo", p] = [10, size]
            made.sent[-1, "backward", "weights", (k + 1) % P] = [0, 1000]
            scores = traces.scored(0.5, 0.6, 0.5 + e / 100)
            trace.write(made, loss=1.0 / (e + 1), scores=scores, peak_rss_bytes=2**20)
        now = summed + 0.01
    for trace in out:
        trace.close()
    return traces.close(folder)


def replayed(run: Path, *words: str) -> Timeline:
    _, replayer, _ = parse([str(run), *words])
    return replayer.replay(Trace(run))


def timed(run: Path, *words: str) -> Times:
    return times_of(replayed(run, *words))
