"""The leading score against what a whole run sends (`harness.results.report.front`): for experiments of any
kind."""

from harness.results.report.front import draw

__all__ = ("draw",)
