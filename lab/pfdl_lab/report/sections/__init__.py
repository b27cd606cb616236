"""Sections that any page may have: training curves, provenance, and runs of an unknown kind."""
