"""The paper's Table II: context shift in images."""
