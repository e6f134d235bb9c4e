"""What a run would take before anybody waits for it: memory, bytes and seconds, from a partition alone."""
