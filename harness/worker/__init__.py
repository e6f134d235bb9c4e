"""The name by which torchrun starts a worker: `python -m harness.worker RUN_DIR`."""
