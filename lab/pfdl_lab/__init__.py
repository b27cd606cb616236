"""One file per table of the paper, and the runner they share."""
