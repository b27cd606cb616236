"""Files, run folders, progress, provenance and validation; for the library's own use."""
