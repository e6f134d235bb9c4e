"""Imported by a process that is about to fork others: what each of them would otherwise import and load by
itself.

The first compiled loop loads numba's registries (half a second). No thread starts here but OpenBLAS's
(scipy's; numpy has begun its own before), which it ends by itself when the process forks.
"""

import torch

from harness.comm.rows import scatter_add_rows

scatter_add_rows(torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64), torch.zeros(1, 1))
