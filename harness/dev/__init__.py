"""What developers run: bench, conformance, fidelity. No package of the core needs it."""
