"""One self-contained page of a folder of runs: the answer first, then verdicts, pictures, tables, runs."""
