"""How near twins are to the graphs they stand for: `python -m harness.fidelity`."""
