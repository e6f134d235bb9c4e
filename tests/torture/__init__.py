"""A campaign against runs and files, drawn from a seed: `python -m tests.torture`, or `make torture`.

What it holds: no file that the program wrote and something damaged is accepted with another result; raw input
is refused in one sentence or read to a valid graph; a run that was killed, stopped, frozen or out of disk
goes on to the same bits; nothing ends in a traceback, a crash or a hang.
"""
