"""A replay by SimGrid, as a program for the interpreter that has its module: JSON in, JSON out.

It imports nothing but SimGrid and the standard library: SimGrid's module belongs to the system's Python,
which has none of the harness's packages. What it is given and what it gives stands in
`harness.replay.engine_simgrid`. It has its own account of when workers post, wait and meet, so that it checks
that of `harness.replay.engine` too.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import simgrid
from simgrid import Actor, Comm, Engine, LinkInRoute, NetZone, Semaphore, this_actor

PRIVATE = 1e18  # bytes per second of the link that gives a path its latency, which nothing shares


class Replay:
    def __init__(self, given: dict[str, Any]):
        self.steps, self.operations, self.meets = given["steps"], given["operations"], given["meet"]
        self.paths = {(a, b): (links, latency) for a, b, links, latency in given["paths"]}
        self.hosts = self.build(given["capacity"], given["places"])
        workers = range(len(self.steps))
        self.posted: dict[int, dict[int, float]] = {}
        self.done: dict[int, dict[int, float]] = {}
        self.last: dict[int, dict[int, int]] = {}
        self.needs: dict[int, list[int]] = {}
        self.pending: dict[int, dict[int, int]] = {}
        self.ready: dict[int, list[list[float]]] = {}
        self.through: dict[int, list[bool]] = {}
        self.arrived: dict[int, list[bool]] = {}
        self.woken = [Semaphore(0) for _ in workers]
        self.waits: list[int | None] = [None for _ in workers]
        self.begins: list[list[float]] = [[] for _ in workers]
        self.spans: list[list[list[float]]] = [[] for _ in workers]
        self.over = [False for _ in workers]
        self.meeting: list[int] = []

    def build(self, capacity: list[float], places: int) -> list[Any]:
        """Hosts with a route for each path, over the links that it crosses and one that is its own."""
        zone = NetZone.create_full_zone("all")
        hosts = [zone.create_host(f"place{p}", 1.0).seal() for p in range(places)]
        links = [zone.create_link(f"link{n}", float(rate)) for n, rate in enumerate(capacity)]
        for link in links:
            link.seal()
        for (a, b), (crossed, latency) in self.paths.items():
            if a == b:
                continue
            own = zone.create_link(f"path{a}-{b}", PRIVATE)
            own.set_latency(latency).seal()
            route = [LinkInRoute(own), *(LinkInRoute(links[n]) for n in crossed)]
            zone.add_route(hosts[a].netpoint, hosts[b].netpoint, None, None, route, False)
        zone.seal()
        return hosts

    def start(self) -> None:
        for worker in range(len(self.steps)):
            Actor.create(f"worker{worker}", self.hosts[worker], self.work, worker)

    # -- workers --

    def work(self, worker: int) -> None:
        for kind, *what in self.steps[worker]:
            start = Engine.clock
            if kind == "begin":
                self.meet(worker)
                self.sleep(what[0])
                self.begins[worker].append(Engine.clock)
                continue
            if kind == "post":
                self.post(what[0], worker)
                continue
            if kind == "work":
                self.sleep(what[0])
            else:
                operation, tail = what
                if operation is not None and worker not in self.done.get(operation, {}):
                    self.waits[worker] = operation
                    self.woken[worker].acquire()
                    self.waits[worker] = None
                self.sleep(tail)
            self.spans[worker].append([start, Engine.clock])
        self.over[worker] = True

    def meet(self, worker: int) -> None:
        """All workers meet where an epoch begins; those of an asynchronous run do not."""
        if not self.meets:
            return
        self.meeting.append(worker)
        if len(self.meeting) < len(self.steps):
            self.woken[worker].acquire()
            return
        others, self.meeting = self.meeting[:-1], []
        for other in others:
            self.woken[other].release()

    @staticmethod
    def sleep(seconds: float) -> None:
        if seconds > 0:
            this_actor.sleep_for(seconds)

    # -- operations --

    def post(self, number: int, worker: int) -> None:
        operation = self.operations[number]
        messages = operation["messages"]
        if number not in self.needs:
            self.needs[number] = [len(m["posts"]) + len(m["after"]) + (m["along"] >= 0) for m in messages]
            self.pending[number] = dict.fromkeys(operation["members"], 0)
            for m in messages:
                for end in {m["source"], m["target"]} & set(operation["members"]):
                    self.pending[number][end] += 1
            self.ready[number] = [[-1.0, 0] for _ in messages]
            self.through[number] = [False for _ in messages]
            self.arrived[number] = [False for _ in messages]
            self.posted[number], self.done[number], self.last[number] = {}, {}, {}
        self.posted[number][worker] = Engine.clock
        for place, message in enumerate(messages):
            if worker in message["posts"]:
                self.less(number, place, worker)
        if not self.pending[number][worker]:
            self.end(number, worker, -1)

    def less(self, number: int, place: int, cause: int) -> None:
        """One thing less that a message waits for; with the last one it leaves."""
        self.needs[number][place] -= 1
        if self.needs[number][place] == 0:
            self.ready[number][place] = [Engine.clock, cause]
            source = self.operations[number]["messages"][place]["source"]
            Actor.create(f"message{number}-{place}", self.hosts[source], self.send, number, place)

    def send(self, number: int, place: int) -> None:
        messages = self.operations[number]["messages"]
        message = messages[place]
        links, latency = self.paths[message["source"], message["target"]]
        source, target = (self.hosts[message[end]] for end in ("source", "target"))
        along = [k for k, other in enumerate(messages) if other["along"] == place]
        if along:
            Actor.create(f"first{number}-{place}", source, self.first_byte, number, place, along, latency)
        if message["source"] != message["target"] and links and message["size"]:
            Comm.sendto(source, target, message["size"])
        else:
            self.sleep(latency)
        self.through[number][place] = True
        if message["along"] < 0 or self.arrived[number][message["along"]]:
            self.arrive(number, place)

    def first_byte(self, number: int, place: int, along: list[int], latency: float) -> None:
        self.sleep(latency)
        for follower in along:
            self.less(number, follower, ~place)

    def arrive(self, number: int, place: int) -> None:
        self.arrived[number][place] = True
        messages = self.operations[number]["messages"]
        message = messages[place]
        for end in {message["source"], message["target"]} & self.pending[number].keys():
            self.pending[number][end] -= 1
            if not self.pending[number][end] and end in self.posted[number]:
                self.end(number, end, place)
        for follower, other in enumerate(messages):
            if place in other["after"]:
                self.less(number, follower, ~place)
            if other["along"] == place and self.through[number][follower]:
                self.arrive(number, follower)

    def end(self, number: int, worker: int, place: int) -> None:
        self.done[number][worker], self.last[number][worker] = Engine.clock, place
        if self.waits[worker] == number:
            self.woken[worker].release()


def main() -> None:
    given = json.load(sys.stdin)
    engine = Engine(["replay", "--log=root.thres:critical", *given["options"]])
    replay = Replay(given)
    replay.start()
    engine.run()
    names = ("begins", "spans", "posted", "done", "last", "ready", "over")
    json.dump({name: getattr(replay, name) for name in names}, sys.stdout)


if __name__ == "__main__":
    print(simgrid.simgrid_version, file=sys.stderr)
    main()
