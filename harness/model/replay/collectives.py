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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.model.replay.program import BACK, THERE, Operation

BROADCASTS = ("ring", "direct")


@dataclass(frozen=True, slots=True)
class Message:
    """Bytes from one place to another; place P is a server.

    after    messages of the operation, by their place in it, that must have arrived before it can leave
    along    the message whose bytes it hands on as they come: it begins when those begin to arrive, and has
             arrived no earlier than they have; -1: none
    """

    source: int
    target: int
    size: int
    after: tuple[int, ...] = ()
    along: int = -1


def messages(operation: Operation, workers: int, broadcast: str) -> list[Message]:
    """The operation's messages. A message names in `after` and `along` only messages that come before it.

    broadcast   how broadcasts are made, of BROADCASTS
    """
    parts = operation.parts
    members = sorted(parts)
    if operation.route == "pairs":
        return [Message(w, p, size) for w in members for p, size in parts[w].items()]
    if operation.route == "take":
        return [Message(p, w, size) for w in members for p, size in parts[w].items()]
    if operation.route == "server":
        (worker,) = members  # a question of one worker's own, and the answer where there is one
        there, back = parts[worker][THERE], parts[worker][BACK]
        answer = [Message(workers, worker, back, after=(0,))] if back else []
        return [Message(worker, workers, there), *answer]
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
    return []  # route "own", or a sum of one worker: nothing leaves its memory


def _broadcast(order: Sequence[int], size: int, shape: str, first: int) -> list[Message]:
    """One block from order[0] to all others. first: the place of its first message in the operation."""
    if shape == "direct":
        return [Message(order[0], b, size) for b in order[1:]]
    pairs = zip(order, order[1:])
    return [Message(a, b, size, along=first + k - 1 if k else -1) for k, (a, b) in enumerate(pairs)]


def _ring_sum(members: Sequence[int], size: int) -> Iterator[Message]:
    """In P - 1 rounds every worker hands on the block to which it has just added its own values; in P - 1
    further rounds the finished blocks go around. What a worker sends in a round came to it in the round
    before."""
    count = len(members)
    bounds = [size * k // count for k in range(count + 1)]
    for step in range(2 * (count - 1)):
        for place in range(count):
            block = (place - step) % count
            after = ((step - 1) * count + (place - 1) % count,) if step else ()
            yield Message(
                members[place], members[(place + 1) % count], bounds[block + 1] - bounds[block], after
            )
