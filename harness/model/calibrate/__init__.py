"""The machine at hand as a cluster that runs can be replayed on: `halobench cluster measure`."""
