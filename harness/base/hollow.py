"""Tensors that have a shape, a type and a size in bytes, but no values: what a dry run computes with.

While `Dry` is open, every operation that makes a floating-point tensor from shapes makes a `Hollow` one, and
every operation on a hollow tensor gives hollow tensors. Integer tensors keep their values, so that lists of
rows, counts and draws are those of a real run. Asking for a hollow tensor's values raises `Unknown`: only
training could tell. Compiled loops of this project read memory directly, so their callers ask `hollow`
first."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from harness.base.heap import PLANNED, Block, Heap
from harness.base.shapes import shapes_of

# Operations that make a tensor from shapes alone, whatever the values of their arguments.
MADE = {
    "empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "zeros", "zeros_like",
    "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full", "rand", "rand_like",
    "randn", "randn_like", "scalar_tensor",
}  # fmt: skip
ZEROS = {"zeros", "zeros_like", "new_zeros"}
# Operations that give their argument's rows unchanged: how full these are is known if it was of the argument.
SAME = {"clone", "_to_copy", "copy_"}


_OPEN = threading.local()  # .mode: the `Dry` that is open in a thread


def storage_of(tensor: torch.Tensor) -> Any:
    """The storage of a tensor: one object for all tensors that share memory."""
    return (tensor.shapes if isinstance(tensor, Hollow) else tensor).untyped_storage()


def dry() -> bool:
    """Whether a dry run is open in this thread."""
    return getattr(_OPEN, "mode", None) is not None


def either() -> bool:
    """The answer that a dry run takes to a question about values, as whether a row has changed: False in one
    dry run, True in another. These two find the least and the most that a real run may send."""
    mode = getattr(_OPEN, "mode", None)
    if mode is None:
        raise Unknown("whether one value is larger than another")
    mode.asked = True
    most: bool = mode.most
    return most


class Unknown(Exception):
    """A value was asked for that a dry run does not have."""


class Fill:
    """How full the rows in one storage are, which decides how many bytes they take when they are sent sparse.

    rows    [rows, 2] as `count_filled` gives it: how many values of each row are not 0, and which value that
            is if they are all alike; 0: all values are 0; None: taken to have no 0
    width   values per row
    """

    def __init__(self, rows: np.ndarray | int | None, width: int):
        self.rows, self.width = rows, width


class Hollow(torch.Tensor):
    """A tensor without values.

    shapes   a tensor of the same shape on torch's device "meta", which has no memory
    fill     how full the rows of its storage are; views share it
    """

    shapes: torch.Tensor
    fill: Fill

    @staticmethod
    def __new__(cls, shapes: torch.Tensor, filled: np.ndarray | int | None = None) -> Hollow:
        made: Hollow = torch.Tensor._make_wrapper_subclass(
            cls, shapes.shape, strides=shapes.stride(), storage_offset=shapes.storage_offset(),
            dtype=shapes.dtype, device=torch.device("cpu"),
        )  # fmt: skip
        made.shapes, made.fill = shapes, Fill(filled, shapes.shape[-1] if shapes.ndim else 0)
        return made

    @property
    def _rows(self) -> slice | None:
        """Which rows of its storage this tensor has; None where it is not made of whole rows."""
        width = self.fill.width
        whole = self.shapes.ndim == 2 and self.shapes.shape[1] == width > 0 and self.shapes.is_contiguous()
        first = self.shapes.storage_offset() // max(width, 1)
        return slice(first, first + self.shapes.shape[0]) if whole else None

    @property
    def filled(self) -> np.ndarray | int | None:
        """How full these rows are, as `Fill` has it."""
        rows, where = self.fill.rows, self._rows
        if not isinstance(rows, np.ndarray):
            return rows
        return None if where is None else rows[where]

    @filled.setter
    def filled(self, value: np.ndarray | int | None) -> None:
        storage, where = self.shapes.untyped_storage(), self._rows
        if where is None or self.shapes.nbytes == storage.nbytes():
            self.fill.rows = np.array(value) if isinstance(value, np.ndarray) and where is not None else value
            return
        rows = self.fill.rows
        if not isinstance(rows, np.ndarray):
            if not isinstance(value, np.ndarray) and value == rows:
                return
            count = storage.nbytes() // (self.shapes.itemsize * self.fill.width)
            rows = self.fill.rows = np.tile([self.fill.width if rows is None else 0, UNLIKE], (count, 1))
        rows[where] = (
            value if isinstance(value, np.ndarray) else [self.fill.width if value is None else 0, UNLIKE]
        )

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's says nothing of it
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return _shapes(func, args, kwargs or {})

    def numpy(self, *, force: bool = False) -> np.ndarray:
        raise Unknown("the values of a tensor")

    def tolist(self) -> Any:
        raise Unknown("the values of a tensor")

    def __repr__(self) -> str:  # type: ignore[override]  # torch's asks for values
        return f"Hollow({list(self.shape)}, {self.dtype})"


def hollow(*tensors: object) -> bool:
    """Whether one of these is a hollow tensor."""
    return any(isinstance(each, Hollow) for each in tensors)


def rows_like(rows: int, width: int, filled: np.ndarray | int | None = None) -> Hollow:
    """A hollow tensor, float32 [rows, width]; `filled`: how full its rows are, as `Fill.rows`."""
    return Hollow(torch.empty(rows, width, dtype=torch.float32, device="meta"), filled)


UNLIKE = -1  # stands for a row's value where its values that are not 0 differ


def count_filled(x: np.ndarray) -> np.ndarray:
    """[rows, 2] int64: for each float32 row of x, how many values are not 0, and the bits of that value where
    they are all alike, else UNLIKE."""
    words = np.ascontiguousarray(x, np.float32).view(np.int32)
    low, high = (
        words.min(1, initial=2**31 - 1, where=words != 0),
        words.max(1, initial=-(2**31), where=words != 0),
    )
    return np.stack([np.count_nonzero(words, 1), np.where(low == high, high, UNLIKE)], 1)


def filled_of(x: Hollow) -> np.ndarray:
    """How full the rows of a hollow tensor are, [rows, 2] as `count_filled` gives it."""
    if isinstance(x.filled, np.ndarray):
        return x.filled
    width = x.numel() // max(len(x), 1)
    return np.broadcast_to(np.array([width if x.filled is None else 0, UNLIKE]), (len(x), 2))


def joined(parts: Sequence[Any]) -> np.ndarray | None:
    """How full the rows of several tensors are, those of one tensor after another's; None where one of the
    tensors is not hollow, or not known to have any 0."""
    if not parts or not all(isinstance(each, Hollow) and each.filled is not None for each in parts):
        return None
    return np.concatenate([filled_of(each) for each in parts])


class Dry(TorchDispatchMode):
    """A dry run: while this is open in a thread, floating-point tensors made there are hollow.

    held    counts the bytes of each tensor that is made
    most    what `either` answers
    asked   whether anybody has asked `either`
    """

    def __init__(self, held: Held, most: bool = False):
        super().__init__()
        self.held, self.most, self.asked = held, most, False

    def __enter__(self) -> Dry:
        _OPEN.mode, PLANNED.heap = self, self.held.heap
        super().__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        _OPEN.mode = PLANNED.heap = None
        super().__exit__(*raised)

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if kwargs.get("device") == torch.device("meta"):  # the inside of a hollow tensor
            return func(*args, **kwargs)
        name = func.overloadpacket.__name__
        if any(issubclass(each, Hollow) for each in types):  # the types of all arguments, also inside lists
            result = _shapes(func, args, kwargs)
        elif name in MADE:
            result = _made(func, name, args, kwargs)
        else:
            result = func(*args, **kwargs)
        for each in result if isinstance(result, tuple | list) else (result,):
            if isinstance(each, torch.Tensor):
                self.held.made(each)
        return result


def _made(func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What an operation of MADE gives whose arguments are not hollow: a hollow tensor. One with values where
    it is of integers, or is made like a floating-point tensor that has values."""
    like = args[0] if args and isinstance(args[0], torch.Tensor) else None
    dtype = kwargs.get("dtype") or (None if like is None else like.dtype)
    if dtype is None:  # torch's rule: `full` of a whole number is int64, all else has the default type
        whole = name == "full" and not isinstance(args[1], float)
        dtype = torch.int64 if whole else torch.get_default_dtype()
    if not dtype.is_floating_point or (like is not None and like.dtype.is_floating_point):
        return func(*args, **kwargs)
    kwargs = {**kwargs, "device": "meta", "dtype": dtype}
    for key in ("generator", "pin_memory"):
        kwargs.pop(key, None)
    args = tuple(each.to("meta") if isinstance(each, torch.Tensor) else each for each in args)
    if func._overloadname == "generator":
        func, args = func.overloadpacket.default, args[:1]
    return Hollow(func(*args, **kwargs), 0 if name in ZEROS else None)


def _shapes(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What an operation on hollow tensors gives: tensors of the shapes that torch computes for its meta
    device. Unknown where the shape or the result depends on values."""
    name = func.overloadpacket.__name__
    if name in ("_local_scalar_dense", "nonzero", "masked_select", "unique_consecutive", "_unique2", "equal"):
        raise Unknown(f"what {name} of a tensor gives")
    first = args[0] if args else None
    if name == "count_nonzero" and isinstance(first, Hollow) and len(args) == 1:
        return torch.tensor(int(filled_of(first)[:, 0].sum()))
    if name.startswith("_fused_"):
        return None
    if name in ("index", "index_put_", "index_put", "_index_put_impl_"):
        args = (args[0], [_places(each) for each in args[1]], *args[2:])
    # Replace every tensor by one on the meta device, and remember which stands for which; then run the
    # operation.
    flat, spec = tree_flatten((args, kwargs))
    given: dict[int, torch.Tensor] = {}
    for place, each in enumerate(flat):
        if isinstance(each, Hollow):
            given[id(each.shapes)] = each
            flat[place] = each.shapes
        elif isinstance(each, torch.Tensor):
            flat[place] = torch.empty_strided(each.shape, each.stride(), dtype=each.dtype, device="meta")
            given[id(flat[place])] = each
        elif isinstance(each, torch.device):
            flat[place] = torch.device("meta")
        elif isinstance(each, torch.Generator):
            flat[place] = None
    args, kwargs = tree_unflatten(flat, spec)
    if "device" in kwargs:
        kwargs["device"] = torch.device("meta")
    result = shapes_of(func, flat, spec, args, kwargs)
    filled = _filled(name, first, args, kwargs, given)

    # Turn the results back: an argument written in place is itself the result, any other meta tensor becomes
    # hollow, and a view of an argument shares its fill.
    fills = {id(storage_of(each)): each.fill for each in given.values() if isinstance(each, Hollow)}

    def back(each: Any) -> Any:
        if not isinstance(each, torch.Tensor):
            return each
        if id(each) in given:  # written in place
            out = given[id(each)]
            if isinstance(out, Hollow):
                out.filled = filled
            return out
        made = Hollow(each, filled)
        made.fill = fills.get(id(each.untyped_storage()), made.fill)  # of a view
        return made

    return type(result)(map(back, result)) if isinstance(result, tuple | list) else back(result)


def _places(index: Any) -> Any:
    """An index; a mask is replaced by the places that it selects, since only its values say how many."""
    if isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8):
        if isinstance(index, Hollow):
            raise Unknown("which rows a mask has")
        return index.nonzero().squeeze(1)
    return index


def _filled(
    name: str, first: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: dict[int, torch.Tensor]
) -> np.ndarray | int | None:
    """How full the rows of an operation's result are, where it makes zeros or takes rows from its arguments
    unchanged; None for any other operation."""
    if name == "copy_":
        first = given.get(id(args[1]))
    elif name == "zero_" or name in ZEROS:
        return 0
    elif name == "cat":
        return joined([given.get(id(each)) for each in args[0]])
    elif name == "index_copy_" and not args[1] and isinstance(first, Hollow):
        source = given.get(id(args[3]))
        if not isinstance(source, Hollow):  # rows of other bytes, seen as values
            return None
        written = filled_of(first).copy()
        written[given[id(args[2])].numpy()] = filled_of(source)
        return written
    filled = first.filled if isinstance(first, Hollow) else None
    rows = {"index_select": lambda: args[2], "index": lambda: args[1][0]}
    if name in SAME or filled is None:
        return filled if name in SAME else None
    if name not in rows or (name == "index" and len(args[1]) > 1) or (name == "index_select" and args[1]):
        return None
    return filled if isinstance(filled, int) else filled[given[id(rows[name]())].numpy()]


class Held:
    """Bytes that a worker holds: `now`, and at the `peak`. Memory that several tensors share counts once.

    heap     a model of the heap in which tensors lie: freed memory that stays resident counts in the peak;
             None: freed memory is free, as on a GPU
    mapped   bytes of memory that the workers of a host share; not in `now` and `peak`
    """

    def __init__(self, heap: Heap | None = None) -> None:
        self.now = self.peak = self.mapped = 0
        self.heap, self._elsewhere = heap, False
        self._known: dict[int, Any] = {}

    def add(self, size: int) -> None:
        """Count `size` bytes more, or fewer where it is negative."""
        self.now += size
        self.peak = max(self.peak, self.now + (0 if self.heap is None else self.heap.idle))

    @contextlib.contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Tensors made while this is open lie in memory that is counted already, so they add nothing."""
        self._elsewhere = True
        try:
            yield
        finally:
            self._elsewhere = False

    def made(self, tensor: torch.Tensor, size: int | None = None) -> None:
        """Count a tensor, from now until its storage is freed: `size` bytes (None: those of its storage)."""
        storage = storage_of(tensor)
        key = id(storage)
        if key in self._known:
            return
        size = 0 if self._elsewhere else storage.nbytes() if size is None else size
        place = self._take(size)
        self._known[key] = weakref.ref(storage, lambda _: self._gone(key, size, place))

    def passing(self, size: int) -> None:
        """Count `size` bytes that are held for a moment only: they may raise the peak."""
        self._give(size, self._take(size, False))

    def _take(self, size: int, tensor: bool = True) -> Block | None:
        place = None if self.heap is None else self.heap.take(size, tensor)
        self.add(size)
        return place

    def _give(self, size: int, place: Block | None) -> None:
        self.now -= size
        if self.heap is not None:
            self.heap.give(place)

    def _gone(self, key: int, size: int, place: Block | None) -> None:
        self._known.pop(key, None)
        self._give(size, place)


def mapped(size: int, tensor: torch.Tensor | None = None) -> None:
    """Tell the dry run of `size` bytes in memory that a host's workers share, those of `tensor` among
    them."""
    held = _OPEN.mode.held
    held.mapped += size
    if tensor is not None:
        held.made(tensor, 0)


def passing(size: int) -> None:
    """Tell the dry run of `size` bytes that are held for a moment, and in no tensor of torch."""
    _OPEN.mode.held.passing(size)
