"""Results that somebody hands in: bundles of runs, how they are checked, and the page that ranks them."""
