"""What every other package may import, and which imports none of them: errors, typed config blocks, hashes of
code, random bits, what all subcommands share."""
