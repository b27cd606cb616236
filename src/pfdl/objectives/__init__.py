"""What is minimised: a weighting of the samples plus penalties, and the registry of names."""
