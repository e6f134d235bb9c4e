"""What every system must hold, as a pytest plugin: `python -m harness.conformance system=NAME`."""
