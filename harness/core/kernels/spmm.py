"""The sparse product every layer is made of, its adjoint, and the kernels that can compute it.

    y = r * (B (c * x) + s (c * x))        B [rows, cols] 0/1 (or `values`), r and c row and column scales, s
                                           in {0, 1}

with `*` row-wise. The three kernels differ in speed only (docs/log.md has the measurements):

    dgl     DGL's blocked copy-sum; what it cannot take (float64, values, 2^31 entries, tiny blocks) goes to
            numba.
    numba   the same sum compiled here, tiled as measured on the machine at hand. Any float type, values, no
            dependency beyond numba.
    torch   torch.sparse CSR; the only one on CUDA.

On the CPU each row is summed by one thread in the order of its entries, so a product is bitwise repeatable,
whatever the number of threads.
"""

import warnings
from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np
import torch

from harness.base.autograd import applied
from harness.base.dgl import load_dgl
from harness.base.errors import InputError, choice
from harness.base.target import imported
from harness.comm import work
from harness.comm.recorder import UNCOUNTED
from harness.core.kernels.dgl_kernel import CopySum, dies
from harness.core.kernels.huge_pages import HugePages
from harness.core.kernels.numba_kernel import NumbaProduct
from harness.core.kernels.tiling import Tilings
from harness.core.order import Order
from harness.data.csr import transpose_entries
from harness.data.partition.shard import Csr

KERNELS = ("auto", "numba", "dgl", "torch")  # and "module.Class" of a Kernel from outside this package

Scale = np.ndarray | torch.Tensor | None  # a number per row or column; None for 1


class Product(Protocol):
    """One block prepared for one kernel."""

    def apply(
        self,
        x: torch.Tensor,
        row: torch.Tensor | None,
        column: torch.Tensor | None,
        self_loops: bool,
        out: torch.Tensor,
        accumulate: bool,
    ) -> None:
        """out (+)= row * (B + s I) (column * x). x [cols, F], out [rows, F] contiguous; scales [rows], [cols]
        or None."""
        ...


class Kernel(ABC):
    """A way to multiply. Passed around, never global.

    A kernel of one's own is a class derived from this one, in a module on the Python path, and asked for as
    `kernel=module.Class`. It says what it cannot run on in `check`.
    """

    name: str  # as it is asked for: one of KERNELS, or "module.Class"
    tilings = Tilings()  # of a kernel whose products are tiled: what was measured for them
    order = Order()  # by which layers choose what they multiply first, and what its products cost
    recorder = UNCOUNTED  # who counts what is computed with it

    def check(self, device: torch.device) -> None:  # noqa: B027 -- most have nothing to refuse
        """Raises InputError for a device that it does not run on; `device` is where the blocks will be."""

    @abstractmethod
    def prepare(self, block: Csr, values: np.ndarray | None, device: torch.device) -> Product:
        """The product with a block whose entries weigh `values` [entries] (None: 1), of rows on `device`."""
        ...

    def transposed(self, block: Csr, values: np.ndarray | None, device: torch.device) -> Product:
        """As `prepare`, for the block's transpose."""
        return self.prepare(*transpose(block, values), device)


def make_kernel(
    name: str = "auto", device: torch.device | str = "cpu", tilings: Tilings | None = None
) -> Kernel:
    """auto is torch on CUDA and numba on the CPU. InputError for a kernel that cannot run.

    tilings   of numba's products; None: the fixed table

    dgl is asked for by name: its product is slower (docs/log.md), and loading it costs a second of every
    start.
    """
    check_kernel(name)
    if "." in name:
        kernel = _kernel_class(name)()
        kernel.name = name
        kernel.check(torch.device(device))
        return kernel
    if torch.device(device).type != "cpu" and name in ("numba", "dgl"):
        raise InputError(f"kernel={name} runs on the CPU only; give kernel=torch or kernel=auto on {device}")
    if name == "torch" or torch.device(device).type != "cpu":
        return TorchKernel()
    if name == "dgl":
        if load_dgl() is not None:
            return DglKernel()
        raise InputError(
            "kernel=dgl needs dgl 2.1.0, which cannot be loaded here; give kernel=auto, or"
            ' pip install "halobench[dgl]"'
        )
    return NumbaKernel(tilings)


def check_kernel(name: str) -> None:
    """InputError for a name that is no kernel's."""
    if "." not in name:
        choice("kernel", name, KERNELS)
    elif lacking := sorted(_kernel_class(name).__abstractmethods__):
        raise InputError(
            f'kernel="{name}" lacks the method {lacking[0]}; define it as harness/core/kernels/spmm.py says'
        )


def _kernel_class(name: str) -> type[Kernel]:
    # `Kernel` is abstract: a base to derive from, never made.
    return imported(name, "kernel", Kernel)  # type: ignore[type-abstract]


# numba


class NumbaKernel(Kernel):
    """tilings   how its products go through columns and entries: what was measured, or the fixed table"""

    name = "numba"

    def __init__(self, tilings: Tilings | None = None):
        self.tilings, self._memory = tilings or Tilings(), HugePages()

    def prepare(self, block: Csr, values: np.ndarray | None, device: torch.device) -> Product:
        return NumbaProduct(block, values, self.tilings, self._memory)


# DGL


class _DglProduct:
    def __init__(self, block: Csr):
        self._block, self._sum, self._numba = block, CopySum(block), NumbaProduct(block)

    def apply(
        self,
        x: torch.Tensor,
        row: torch.Tensor | None,
        column: torch.Tensor | None,
        self_loops: bool,
        out: torch.Tensor,
        accumulate: bool,
    ) -> None:
        # DGL sums float32 only, and wakes every thread for the smallest block.
        if dies(self._block, x.shape[1]) or x.dtype != torch.float32 or self._numba.is_small(x.shape[1]):
            self._numba.apply(x, row, column, self_loops, out, accumulate)
            return
        if column is not None:
            x = x * column.unsqueeze(1)
        # DGL adds to what is there: the self-loops, and an unscaled sum's base, cost nothing more.
        total = torch.empty_like(out) if accumulate and row is not None else out
        if total is not out or not accumulate:
            total.copy_(x) if self_loops else total.zero_()
        elif self_loops:
            total.add_(x)
        if self._block.num_entries:
            self._sum.add(x, total)
        if row is not None:
            if accumulate:
                out.addcmul_(total, row.unsqueeze(1))
            else:
                out.mul_(row.unsqueeze(1))


class DglKernel(Kernel):
    name = "dgl"

    def prepare(self, block: Csr, values: np.ndarray | None, device: torch.device) -> Product:
        fits = block.num_entries < 2**31
        return _DglProduct(block) if values is None and fits else NumbaProduct(block, values)


class _TorchProduct:
    """Scales and self-loops are values of the matrix, so that a product is one operation of the device, which
    adds to what is there by itself. Matrices of other scales or types share its indices."""

    def __init__(self, block: Csr, values: np.ndarray | None, device: torch.device):
        self._block, self._device = block, device
        self._values = np.ones(block.num_entries, np.float32) if values is None else values
        self._entries: dict[bool, tuple[torch.Tensor, torch.Tensor]] = {}  # by self_loops
        # By what has gone into their values. The scales are kept, so that no other tensor gets their ids.
        self._matrices: dict[tuple[object, ...], tuple[torch.Tensor, Any]] = {}

    def apply(
        self,
        x: torch.Tensor,
        row: torch.Tensor | None,
        column: torch.Tensor | None,
        self_loops: bool,
        out: torch.Tensor,
        accumulate: bool,
    ) -> None:
        key = (x.dtype, id(row), id(column), self_loops)
        if key not in self._matrices:
            self._matrices[key] = (self._matrix(x.dtype, row, column, self_loops), (row, column))
        torch.addmm(out, self._matrices[key][0], x, beta=int(accumulate), out=out)

    def _matrix(
        self, dtype: torch.dtype, row: torch.Tensor | None, column: torch.Tensor | None, self_loops: bool
    ) -> torch.Tensor:
        if self_loops not in self._entries:
            self._entries[self_loops] = self._on_device(self_loops)
        starts, columns = self._entries[self_loops]
        values = np.insert(self._values, self._block.indptr[1:], 1) if self_loops else self._values
        weights = torch.from_numpy(values).to(self._device, dtype, non_blocking=True)
        if row is not None:
            counts = starts[1:] - starts[:-1]
            weights = weights * torch.repeat_interleave(row.to(dtype), counts, output_size=len(columns))
        if column is not None:
            weights = weights * column.to(dtype)[columns]
        with warnings.catch_warnings():  # torch 2.11 says the second, although it is told not to check
            warnings.filterwarnings("ignore", "Sparse CSR tensor support|Sparse invariant", UserWarning)
            shape = (self._block.num_rows, self._block.num_columns)
            return torch.sparse_csr_tensor(starts, columns, weights, shape, check_invariants=False)

    def _on_device(self, self_loops: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Where rows begin [rows + 1], and the columns of their entries."""
        indptr, indices = self._block.indptr, self._block.indices
        if self_loops:
            rows = np.arange(self._block.num_rows + 1)
            indptr, indices = indptr + rows, np.insert(indices, indptr[1:], rows[:-1])
        index = np.int32 if len(indices) < 2**31 else np.int64  # torch wants pointers and indices alike
        starts, columns = (torch.from_numpy(p.astype(index, copy=False)) for p in (indptr, indices))
        return starts.to(self._device, non_blocking=True), columns.to(self._device, non_blocking=True)


class TorchKernel(Kernel):
    name = "torch"

    def prepare(self, block: Csr, values: np.ndarray | None, device: torch.device) -> Product:
        return _TorchProduct(block, values, device)


# The operator


def transpose(block: Csr, values: np.ndarray | None = None) -> tuple[Csr, np.ndarray | None]:
    """The transposed block [cols, rows], and its values."""
    indptr, indices, order = transpose_entries(
        block.indptr, block.indices, block.num_columns, values is not None
    )
    return Csr(indptr, indices, block.num_rows), None if values is None else values[order]


class SparseOperator:
    """x [cols, F] -> r * (B + s I) (c * x)  [rows, F], and its exact transpose.

    block       Csr; its index arrays are used in place
    row, column [rows], [cols] (numpy or tensor), or None for 1
    self_loops  each row also counts itself (a square block only)
    symmetric   B equals its transpose: a square block without values is then used for both directions
    values      [entries] instead of the block's own; None: the block's own, or 1
    """

    def __init__(
        self,
        block: Csr,
        row: Scale = None,
        column: Scale = None,
        *,
        kernel: Kernel,
        self_loops: bool = False,
        symmetric: bool = False,
        values: np.ndarray | None = None,
        device: torch.device | str = "cpu",
    ):
        assert not self_loops or block.num_rows == block.num_columns
        self.block, self.kernel, self.device = block, kernel, torch.device(device)
        # One tensor where both are one scale: a kernel that keeps what it made of them then makes it once.
        self._row = self._scale(row)
        self._column = self._row if column is row else self._scale(column)
        self._values, self._self_loops = block.values if values is None else values, self_loops
        self._symmetric = symmetric and self._values is None and block.num_rows == block.num_columns
        self._forward = kernel.prepare(block, self._values, self.device)
        self._adjoint: Product | None = self._forward if self._symmetric else None
        self._works: dict[tuple[int | bool, ...], work.Work] = {}

    def _scale(self, scale: Scale) -> torch.Tensor | None:
        return None if scale is None else torch.as_tensor(scale).to(self.device, non_blocking=True)

    @property
    def num_rows(self) -> int:
        return self.block.num_rows

    @property
    def num_columns(self) -> int:
        return self.block.num_columns

    @property
    def num_entries(self) -> int:
        return self.block.num_entries

    def weights(self) -> np.ndarray:
        """[entries] what the operator multiplies by at each entry of `block`, scales included."""
        found = np.ones(self.num_entries) if self._values is None else self._values.astype(np.float64)
        if self._row is not None:
            found = found * np.repeat(self._row.cpu().numpy(), np.diff(self.block.indptr))
        if self._column is not None:
            found = found * self._column.cpu().numpy()[self.block.indices]
        return found

    def forward(
        self, x: torch.Tensor, out: torch.Tensor | None = None, accumulate: bool = False
    ) -> torch.Tensor:
        """y [rows, F], written (or with `accumulate` added) to `out` where one is given. No autograd."""
        return self._run(self._forward, x, self.num_rows, self._row, self._column, out, accumulate)

    def adjoint(
        self, g: torch.Tensor, out: torch.Tensor | None = None, accumulate: bool = False
    ) -> torch.Tensor:
        """The transpose applied to g [rows, F]: c * (B^T + s I) (r * g)  [cols, F]."""
        if self._adjoint is None:
            # Timed as bookkeeping, as making the block was: of blocks drawn anew it is no small part.
            recorder = self.kernel.recorder
            with recorder.inside("rest", "transpose", recorder.layer):
                self._adjoint = self.kernel.transposed(self.block, self._values, self.device)
        return self._run(self._adjoint, g, self.num_columns, self._column, self._row, out, accumulate)

    def _run(
        self,
        product: Product,
        x: torch.Tensor,
        num_rows: int,
        row: torch.Tensor | None,
        column: torch.Tensor | None,
        out: torch.Tensor | None,
        accumulate: bool,
    ) -> torch.Tensor:
        x = x.detach().contiguous()
        if out is None:
            assert not accumulate
            out = x.new_empty(num_rows, x.shape[1])
        assert out.is_contiguous() and out.shape == (num_rows, x.shape[1])
        recorder = self.kernel.recorder
        if recorder.training:
            recorder.work(self._work(x, num_rows, row is not None, column is not None, accumulate))
        product.apply(x, row, column, self._self_loops, out.detach(), accumulate)
        return out

    def _work(self, x: torch.Tensor, rows: int, row: bool, column: bool, accumulate: bool) -> work.Work:
        """The work of one product, in either direction, that makes `rows` rows of x [columns, F]; kept, since
        it is the same in every epoch."""
        key = *x.shape, x.itemsize, rows, row, column, accumulate
        if key not in self._works:
            scales = {"row": row, "column": column, "loops": self._self_loops, "accumulate": accumulate}
            size, pointer, values = x.itemsize, self.block.indptr.itemsize, self._values is not None
            self._works[key] = work.sparse(
                rows, len(x), self.num_entries, x.shape[1], size, pointer=pointer, values=values, **scales
            )
        return self._works[key]


class SpMM(torch.autograd.Function):
    """base + A x, differentiable in both."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, base: torch.Tensor | None, operator: SparseOperator, in_place: bool
    ) -> torch.Tensor:
        ctx.operator, ctx.due = operator, operator.kernel.recorder.due(any(ctx.needs_input_grad))
        if base is None:
            return operator.forward(x)
        if in_place:
            ctx.mark_dirty(base)
        else:
            base = base.clone(memory_format=torch.contiguous_format)
        return operator.forward(x, out=base, accumulate=True)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, None, None]:
        x_grad = ctx.operator.adjoint(g) if ctx.needs_input_grad[0] else None
        ctx.operator.kernel.recorder.work(*ctx.due)
        return x_grad, g if ctx.needs_input_grad[1] else None, None, None


def spmm(operator: SparseOperator, x: torch.Tensor, base: torch.Tensor | None = None) -> torch.Tensor:
    """A x, or base + A x  [rows, F]. The sum is written into a base that is itself the result of `spmm` in an
    autograd graph: such a base must not be used again.
    """
    in_place = base is not None and isinstance(base.grad_fn, SpMM._backward_cls) and base.is_contiguous()
    return applied(SpMM, x, base, operator, in_place)
