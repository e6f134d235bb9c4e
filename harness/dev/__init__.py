"""What developers run: bench, conformance, history, fidelity. No package of the core needs it."""
