"""Compiled products and loops: what is fast, apart from what it is for."""
