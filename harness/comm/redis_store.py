"""The representation store's Redis backend: a real server, on this host or another.

A worker's slice of a layer is a hash of stamps by slot, under `KEY`, and one string per slot and block of
rows, under `KEY:slot:block`. A push replaces the blocks and the stamp in one transaction. A pull is one
script per owner, run by the server: it picks the slot by its stamp, gathers the wanted rows by an index that
was left there once, and returns nothing but those rows and their stamp. The index travels at setup, outside
the train clock; every later command takes a few dozen bytes beside its rows.

Keys begin with a random number of the run and expire after a day, so that a run that was killed leaves
nothing for good.
"""

import contextlib
import os
from collections.abc import Iterator

import numpy as np
import redis

from harness.base.errors import InputError, first_line
from harness.comm.backend import EMPTY, PASSWORD, Layout
from harness.comm.comm import Comm
from harness.comm.host import draw_token
from harness.comm.service import ServiceLost

BLOCK_BYTES = 64 << 20  # Redis takes strings up to 512 MB
TIMEOUT = 60.0  # seconds without an answer after which the server is lost
EXPIRY = 86_400  # seconds after which the server deletes what is neither written nor (an index) read again

# KEYS: the slice, the index. ARGV: wanted stamp or "newest", bytes per row, blocks, seconds that the index is
# kept from now on. Returns the stamp, then the rows by block.
GATHER = """
local stamps, slot, best = redis.call('HGETALL', KEYS[1]), nil, nil
for i = 1, #stamps, 2 do
  local stamp = tonumber(stamps[i + 1])
  if ARGV[1] == stamps[i + 1] or (ARGV[1] == 'newest' and (best == nil or stamp > best)) then
    slot, best = stamps[i], stamp
  end
end
if slot == nil then return false end
local width, out = tonumber(ARGV[2]), {string.format('%d', best)}
for block = 0, tonumber(ARGV[3]) - 1 do
  local index = redis.call('GET', KEYS[2] .. ':' .. block)
  if not index then return false end
  redis.call('EXPIRE', KEYS[2] .. ':' .. block, ARGV[4])
  local rows, parts = '', {}
  if #index > 0 then rows = redis.call('GET', KEYS[1] .. ':' .. slot .. ':' .. block) end
  if not rows then return false end
  for i = 1, #index / 4 do
    local at = struct.unpack('<I4', index, 4 * i - 3) * width
    parts[i] = string.sub(rows, at + 1, at + width)
  end
  out[#out + 1] = table.concat(parts)
end
return out
"""


class Redis:
    """One worker's access to a Redis server: a `harness.comm.backend.Backend`. Setting up is collective.

    address   redis://[USER@]HOST:PORT[/DB] or unix:///SOCKET; the password, where the server asks for one, is
              in the environment variable HALOBENCH_REDIS_PASSWORD

    Raises InputError where no server answers there, or it refuses the password; operations raise ServiceLost.
    """

    def __init__(self, address: str, layout: Layout, comm: Comm):
        self.address, self.layout, self.prefix = address, layout, f"halobench:{draw_token(comm)}"
        try:
            self.server = redis.Redis.from_url(
                address,
                password=os.environ.get(PASSWORD),
                socket_timeout=TIMEOUT,
                socket_connect_timeout=TIMEOUT,
                retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0),
            )
            self.server.ping()
        except redis.AuthenticationError:
            if PASSWORD not in os.environ:
                said = f"asks for a password; set the environment variable {PASSWORD}"
            else:
                said = f"refuses the password in {PASSWORD}; correct it, or unset it if the server has none"
            raise InputError(f"store={address} {said}") from None
        except (redis.RedisError, ValueError, OSError) as error:
            raise InputError(
                f"store={address} does not answer ({first_line(error)}); start redis-server there"
            ) from None
        self.gather = self.server.register_script(GATHER)
        self.leave_index()

    def leave_index(self) -> None:
        """Put the index for pulls on the server: for every layer, owner and block, which rows of the block
        this worker wants, counted from the block's first row.
        """
        with self._asking("setting up") as pipe:
            for layer in self.layout.widths:
                per_block = self.rows_per_block(layer)
                for owner, rows in enumerate(self.layout.rows):
                    cuts = np.searchsorted(rows, per_block * np.arange(1, self.num_blocks(layer, owner)))
                    for block, part in enumerate(np.split(rows, cuts)):
                        index = (part - block * per_block).astype("<u4").tobytes()
                        pipe.set(f"{self.index_key(layer, owner)}:{block}", index, ex=EXPIRY)

    def key(self, layer: int, owner: int) -> str:
        return f"{self.prefix}:{layer}:{owner}"

    def index_key(self, layer: int, owner: int) -> str:
        return f"{self.prefix}:index:{self.layout.rank}:{layer}:{owner}"

    def row_bytes(self, layer: int) -> int:
        return self.layout.widths[layer] * self.layout.dtype.itemsize

    def rows_per_block(self, layer: int) -> int:
        return max(1, BLOCK_BYTES // self.row_bytes(layer))

    def num_blocks(self, layer: int, owner: int) -> int:
        return -(-self.layout.sizes[owner] // self.rows_per_block(layer))

    def write(self, layer: int, slot: int, rows: np.ndarray, stamp: int) -> None:
        key, per_block = self.key(layer, self.layout.rank), self.rows_per_block(layer)
        with self._asking(f"a push of layer {layer}") as pipe:
            for block, first in enumerate(range(0, len(rows), per_block)):
                # the client counts items, not bytes
                part = np.ascontiguousarray(rows[first : first + per_block]).data.cast("B")
                pipe.set(f"{key}:{slot}:{block}", part, ex=EXPIRY)
            pipe.hset(key, str(slot), str(stamp))
            pipe.expire(key, EXPIRY)

    def read(self, layer: int, owner: int, stamp: int | None, out: np.ndarray) -> int:
        keys = [self.key(layer, owner), self.index_key(layer, owner)]
        wanted = "newest" if stamp is None else str(stamp)
        arguments: list[str | int] = [wanted, self.row_bytes(layer), self.num_blocks(layer, owner), EXPIRY]
        try:
            answer = self.gather(keys=keys, args=arguments)
        except (redis.RedisError, OSError) as error:
            raise self._lost(f"a pull of layer {layer}", error) from error
        if not answer:
            raise ServiceLost(
                f"the store {self.address} no longer holds what worker {owner} pushed of layer {layer}"
                " (emptied, or out of memory?); the same command goes on from the last checkpoint"
            )
        at = 0
        with self._holding(f"a pull of layer {layer}"):
            for part in answer[1:]:
                rows = np.frombuffer(part, self.layout.dtype).reshape(-1, out.shape[1])
                out[at : at + len(rows)] = rows
                at += len(rows)
            if at != len(out):
                raise ValueError(f"{at} rows for {len(out)}")
            return int(answer[0])

    def stamps(self, layer: int) -> list[int]:
        try:
            held = self.server.hgetall(self.key(layer, self.layout.rank))
        except (redis.RedisError, OSError) as error:
            raise self._lost("reading stamps", error) from error
        with self._holding("reading stamps"):
            return [int(held.get(str(slot).encode(), EMPTY)) for slot in range(self.layout.slots)]

    def slice(self, layer: int, slot: int) -> np.ndarray:
        key = f"{self.key(layer, self.layout.rank)}:{slot}"
        with self._asking(f"reading layer {layer} back") as pipe:
            for block in range(self.num_blocks(layer, self.layout.rank)):
                pipe.get(f"{key}:{block}")
            parts = pipe.execute()
        if None in parts:
            raise ServiceLost(
                f"the store {self.address} no longer holds layer {layer}; the same command goes on from the"
                " last checkpoint"
            )
        with self._holding(f"reading layer {layer} back"):
            return np.frombuffer(b"".join(parts), self.layout.dtype).reshape(-1, self.layout.widths[layer])

    def close(self) -> None:
        """Delete this worker's keys; a server that is gone is left alone."""
        try:
            # A pattern's * stands for ":" too, so that it may only be the end of a key.
            stamps = [self.key(layer, self.layout.rank) for layer in self.layout.widths]
            begins = [*stamps, f"{self.prefix}:index:{self.layout.rank}"]
            found = [key for begin in begins for key in self.server.scan_iter(f"{begin}:*", count=1000)]
            self.server.delete(*stamps, *found)
            self.server.close()
        except (redis.RedisError, OSError):
            pass

    @contextlib.contextmanager
    def _asking(self, what: str) -> Iterator[redis.client.Pipeline]:
        """Send the commands given inside together, as one transaction, when this closes. Where the server
        fails, ServiceLost says that `what` was under way."""
        pipe = self.server.pipeline(transaction=True)
        try:
            yield pipe
            if len(pipe):
                pipe.execute()
        except (redis.RedisError, OSError) as error:
            raise self._lost(what, error) from error

    @contextlib.contextmanager
    def _holding(self, what: str) -> Iterator[None]:
        """Turn errors of reading an answer into ServiceLost: the server holds what no worker pushed."""
        try:
            yield
        except (ValueError, TypeError) as error:
            raise ServiceLost(
                f"the store {self.address} holds something else than what was pushed, as {what} found"
                f" ({first_line(error)}); keep others from its keys: the same command goes on from the last"
                " checkpoint"
            ) from error

    def _lost(self, what: str, error: Exception) -> ServiceLost:
        return ServiceLost(
            f"the store {self.address} went away in {what} ({first_line(error)}); start it again, and the"
            " same command goes on from the last checkpoint"
        )
