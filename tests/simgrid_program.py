"""A program timed by SimGrid, for tests/test_replay_simgrid.py: JSON in, JSON out.

It runs under the interpreter that has SimGrid's module, which has none of the harness's packages. It has its
own account of when workers post, wait and meet, so that it checks that of `harness.model.replay.engine` too.

in    capacity of links; paths [source, target, links, latency]; by worker its steps; operations, with their
      messages as of `harness.model.replay.collectives.Message` and the workers that must have posted before
      each
out   the moments of worker 0, then of worker 1, ...: where its epochs begin, and its work and waits end
"""

import json
import sys
from typing import Any

from simgrid import Actor, Barrier, Comm, Engine, LinkInRoute, NetZone, Semaphore, this_actor

PRIVATE = 1e18  # bytes per second of the link that gives a path its latency, which nothing shares


def hosts_of(given: dict[str, Any]) -> list[Any]:
    """The workers and a server, with a route for each path: the links that it crosses and one of its own."""
    zone = NetZone.create_full_zone("all")
    hosts = [zone.create_host(f"place{place}", 1.0).seal() for place in range(len(given["steps"]) + 1)]
    links = [zone.create_link(f"link{n}", float(rate)).seal() for n, rate in enumerate(given["capacity"])]
    for a, b, crossed, latency in given["paths"]:
        own = zone.create_link(f"path{a}-{b}", PRIVATE).set_latency(latency).seal()
        route = [LinkInRoute(link) for link in (own, *(links[n] for n in crossed))]
        zone.add_route(hosts[a].netpoint, hosts[b].netpoint, None, None, route, False)
    zone.seal()
    return hosts


class Operation:
    """needs: by message the posts and messages that it waits for; pending: by worker the messages to and from
    it that have not arrived; done: by worker what is released when the operation is through for it."""

    def __init__(self, members: list[int], messages: list[dict[str, Any]]):
        self.messages = messages
        self.needs = [len(m["posts"]) + len(m["after"]) + (m["along"] >= 0) for m in messages]
        self.pending = {w: sum(w in (m["source"], m["target"]) for m in messages) for w in members}
        self.done = {worker: Semaphore(0) for worker in members}
        self.through, self.arrived = ([False] * len(messages) for _ in range(2))
        self.posted: set[int] = set()

    def post(self, worker: int) -> None:
        self.posted.add(worker)
        for place, message in enumerate(self.messages):
            if worker in message["posts"]:
                self.less(place)
        self.end(worker)

    def less(self, place: int) -> None:
        """One thing less that a message waits for; with the last one it leaves."""
        self.needs[place] -= 1
        if not self.needs[place]:
            Actor.create("message", hosts[self.messages[place]["source"]], self.send, place)

    def send(self, place: int) -> None:
        message = self.messages[place]
        ends = message["source"], message["target"]
        Actor.create("first byte", hosts[ends[0]], self.first_byte, place, latencies[ends])
        Comm.sendto(hosts[ends[0]], hosts[ends[1]], message["size"])
        self.through[place] = True
        if message["along"] < 0 or self.arrived[message["along"]]:
            self.arrive(place)

    def first_byte(self, place: int, latency: float) -> None:
        this_actor.sleep_for(latency)
        for follower, other in enumerate(self.messages):
            if other["along"] == place:
                self.less(follower)

    def arrive(self, place: int) -> None:
        self.arrived[place] = True
        for end in {self.messages[place]["source"], self.messages[place]["target"]} & self.pending.keys():
            self.pending[end] -= 1
            self.end(end)
        for follower, other in enumerate(self.messages):
            if place in other["after"]:
                self.less(follower)
            if other["along"] == place and self.through[follower]:
                self.arrive(follower)

    def end(self, worker: int) -> None:
        if worker in self.posted and not self.pending[worker]:
            self.done[worker].release()


def work(worker: int, steps: list[list[Any]], moments: list[float]) -> None:
    for kind, *what in steps:
        if kind == "post":
            operations[what[0]].post(worker)
            continue
        if kind == "begin":
            meeting.wait()
        elif kind == "wait":
            operations[what[0]].done[worker].acquire()
        this_actor.sleep_for(what[-1])
        moments.append(Engine.clock)


if __name__ == "__main__":
    given = json.load(sys.stdin)
    engine = Engine(["replay", "--log=root.thres:critical", *given["options"]])
    hosts = hosts_of(given)
    latencies = {(a, b): latency for a, b, _, latency in given["paths"]}
    operations = [Operation(each["members"], each["messages"]) for each in given["operations"]]
    meeting = Barrier(len(given["steps"]))
    found: list[list[float]] = [[] for _ in given["steps"]]
    for worker, steps in enumerate(given["steps"]):
        Actor.create(f"worker{worker}", hosts[worker], work, worker, steps, found[worker])
    engine.run()
    json.dump([moment for moments in found for moment in moments], sys.stdout)
