"""What workers depend on beside each other: stores, servers, and threads beside their training."""

STORE = -1  # the peer of what is sent to a store or a server


class ServiceLost(RuntimeError):
    """A process that the run depends on, other than a worker, went away, or a thread beside the training
    failed. The message is one sentence and says all.
    """
