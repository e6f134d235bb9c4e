"""The messages that an operation is made of.

With P workers, n bytes, a latency L and links of B bytes per second that nobody else uses:

    pairs        a message from each worker to each peer, all at once      L + (bytes out of a worker) / B,
                 if all pairs have equally many; else at least the most out of, or into, one worker
    broadcast
      ring       around the workers, each handing on what has arrived      (P - 1) L + n / B
      direct     from the root to every other worker                       L + (P - 1) n / B
    all-reduce   2 (P - 1) rounds of n / P bytes to the next worker        2 (P - 1) (L + n / (P B))

NCCL makes broadcasts and large sums around a ring, and an all-to-all of pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from harness.model.replay.platform import Platform
from harness.model.replay.program import BACK, THERE, Operation

BROADCASTS = ("ring", "direct")


@dataclass(frozen=True, slots=True)
class Message:
    """Bytes from one place to another; place P is a server.

    after    messages of the operation (by their place in it) that have arrived before it can leave
    along    the message whose bytes it hands on as they come: it begins when those begin to arrive, and has
             arrived no earlier than they have; -1: none
    delay    seconds that its first byte takes beside the latency of its own path: of a message that stands
             for several one after the other
    """

    source: int
    target: int
    size: int
    after: tuple[int, ...] = ()
    along: int = -1
    delay: float = 0.0


def on_links(operation: Operation, platform: Platform, sent: list[Message]) -> list[Message]:
    """The operation's messages with the sizes that they have for a platform's links: those of broadcasts go
    at the rate of broadcasts."""
    if operation.route != "broadcast":
        return sent
    size = platform.broadcast_size
    return [replace(each, size=size(each.source, each.target, each.size)) for each in sent]


MOST = 65_536  # messages of an operation that are simulated one by one


def lumped(operation: Operation, platform: Platform, broadcast: str) -> list[Message] | None:
    """An operation of more messages than MOST, as one message per pair of hosts and per pair of workers of
    one host, or per worker of a ring: all leave once all its workers have posted it, and it is through for
    all of them when all have arrived. None where it has no more than MOST. broadcast: as of `messages`.

    A ring's sum sends each worker's whole share to the next one, behind the latencies of all hops that a
    block takes.
    """
    parts, hosts = operation.parts, platform.hosts
    members = sorted(parts)
    count = len(members)
    ring = list(zip(members, [*members[1:], *members[:1]]))
    if operation.route == "ring":
        if 2 * (count - 1) * count <= MOST:
            return None
        share = round(sum(sum(part.values()) for part in parts.values()) / count)
        around = sum(platform.path(*hop).latency for hop in ring)
        hops = 2 * (count - 1) / count * around
        return [Message(a, b, share, delay=hops - platform.path(a, b).latency) for a, b in ring]
    delay = 0.0
    if operation.route == "pairs":
        each = parts
    elif operation.route == "broadcast":
        # Around a ring or from the root, every other member gets the whole block once.
        each = {w: dict.fromkeys((p for p in members if p != w), max(part.values()))
                for w, part in parts.items() if part}  # fmt: skip
        if broadcast == "ring":
            delay = (count - 2) / count * sum(platform.path(*hop).latency for hop in ring)
    else:
        return None
    if sum(map(len, each.values())) <= MOST:
        return None
    sizes: dict[tuple[int, int], int] = {}
    ends: dict[tuple[int, int], tuple[int, int]] = {}
    for source, part in each.items():
        for target, size in part.items():
            apart = hosts[source] != hosts[target]
            # Workers of one host by themselves, below 0 so that they are no pair of hosts.
            key = (hosts[source], hosts[target]) if apart else (-1 - source, -1 - target)
            sizes[key] = sizes.get(key, 0) + size
            ends.setdefault(key, (source, target))
    return [Message(*ends[key], size, delay=delay) for key, size in sizes.items()]


def messages(operation: Operation, workers: int, broadcast: str) -> list[Message]:
    """The operation's messages; each names only such before it in `after` and `along`.

    broadcast   how broadcasts are made, of BROADCASTS
    """
    parts = operation.parts
    members = sorted(parts)
    if operation.route == "pairs":
        return [Message(w, p, size) for w in members for p, size in parts[w].items()]
    if operation.route == "take":
        return [Message(p, w, size) for w in members for p, size in parts[w].items()]
    if operation.route == "server":
        return [m for w in members for m in _there_and_back(w, workers, parts[w][THERE], parts[w][BACK])]
    if operation.route == "broadcast":
        roots = {w: max(parts[w].values()) for w in members if parts[w]}
        made: list[Message] = []
        for root, size in roots.items():
            others = [w for w in members if w > root] + [w for w in members if w < root]
            made += _broadcast([root, *others], size, broadcast, len(made))
        return made
    if operation.route == "ring" and len(members) > 1:
        total = sum(sum(part.values()) for part in parts.values())
        size = round(total / (2 * (len(members) - 1)))
        return [*_ring_sum(members, size)]
    return []  # into its own memory


def _there_and_back(worker: int, server: int, there: int, back: int) -> list[Message]:
    """A question and its answer. The answer names its question by the place that it has among two messages:
    an operation with a server is one worker's own."""
    asked = [Message(worker, server, there)]
    return [*asked, Message(server, worker, back, after=(0,))] if back else asked


def _broadcast(order: Sequence[int], size: int, shape: str, first: int) -> list[Message]:
    """One block from order[0] to all others. first: the place of its first message in the operation."""
    if shape == "direct":
        return [Message(order[0], b, size) for b in order[1:]]
    pairs = zip(order, order[1:])
    return [Message(a, b, size, along=first + k - 1 if k else -1) for k, (a, b) in enumerate(pairs)]


def _ring_sum(members: Sequence[int], size: int) -> Iterator[Message]:
    """In P - 1 rounds every worker hands on the block that it has just added its own to; in P - 1 further
    rounds the finished blocks go around. What a worker sends in a round came to it in the round before."""
    count = len(members)
    bounds = [size * k // count for k in range(count + 1)]
    for step in range(2 * (count - 1)):
        for place in range(count):
            block = (place - step) % count
            after = ((step - 1) * count + (place - 1) % count,) if step else ()
            yield Message(
                members[place], members[(place + 1) % count], bounds[block + 1] - bounds[block], after
            )
