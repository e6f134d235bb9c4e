"""A pretended GPU, to test the path of a CUDA device on a machine that has none.

Its tensors hold CPU tensors and say that they are on device cuda (`tensor`); factories that are asked for
device cuda make such tensors (`mode`); "nccl" is gloo behind checks (`collectives`); what the host waits for
and what it launches is counted by line of code (`tally`); `install` puts all of it in place for as long as a
`with` block lasts.

It can show

* that no operation mixes tensors of the two devices, and that a resumed run has its state on the right one;
* that what is handed to NCCL is on the device, contiguous and of a type that NCCL has; that all workers start
  the same operations in the same order, with sizes that fit; and that what is in flight is neither written
  nor read before it has been waited for;
* where the host waits for the device, how often, and whether the whole device is drained while operations
  are in flight;
* to which segment of an epoch the time of kernels and transfers is charged that run behind the host, and how
  much of a transfer is hidden: of a virtual time that follows from what was asked for (`timeline`), with
  streams and events, and the backward pass on a thread of its own;
* that a run computes what it computes on the CPU.

It cannot show races between streams, errors of CUDA kernels, deadlocks inside NCCL, pinned memory, or speed:
every value is computed at once, in the order in which the host asks for it. Counts of launches are those of
PyTorch's operations that write memory, of which a few launch more than one kernel or none.
"""
