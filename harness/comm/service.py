"""What workers depend on beside each other: stores, servers, and threads beside their training."""

STORE = -1  # the peer of what is sent to a store or a server


class ServiceLost(RuntimeError):
    """A process other than a worker, on which the run depends, went away, or a thread beside the training
    failed. The message is one sentence that needs no traceback.
    """
