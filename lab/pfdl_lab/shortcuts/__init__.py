"""Real shortcuts: photographs with a hidden context, and what is found and repaired there."""
