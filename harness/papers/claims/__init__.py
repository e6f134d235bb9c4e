"""What the papers print, which experiment shows each of it, and whether it holds here."""
