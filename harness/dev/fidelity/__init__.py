"""How near twins are to the graphs they stand for: `halobench fidelity`."""
