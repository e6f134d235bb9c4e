"""Runs on other clusters, by a model of time: replay, plan, calibrate. No package of the core needs it."""
