"""Every system on real graphs, as one page: `python -m harness.study`."""
