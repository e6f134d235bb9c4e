"""What systems are made of: pieces that two of them share, or that would hide a system's algorithm in its own
file.
"""
