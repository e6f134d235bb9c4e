"""A run timed anew on a described cluster, from its trace alone (docs/replay.md)."""
