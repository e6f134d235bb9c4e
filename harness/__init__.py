"""HaloBench: distributed full-graph GNN training systems under one graph, one model, one clock."""

__version__ = "0.2.0"
