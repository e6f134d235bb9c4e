"""What every other package may use and what knows none of them: hashes of code, random bits."""
