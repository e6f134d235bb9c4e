"""Oracles: the papers' equations in dense, single-process float64, written apart from harness/ and
systems/.
"""
