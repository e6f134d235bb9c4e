"""What workers depend on beside each other: stores and servers."""

STORE = -1  # the peer of what is sent to a store or a server


class ServiceLost(RuntimeError):
    """A process that the run depends on, other than a worker, went away. The message is one sentence and says
    all.
    """
