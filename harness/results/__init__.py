"""The run folder: what a run leaves behind, and how to read it (docs/trace.md)."""
