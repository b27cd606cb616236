"""Contexts that nobody labelled: infer them, weigh them, judge them."""
