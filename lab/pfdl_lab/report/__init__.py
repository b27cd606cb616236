"""Pages and tables about runs: what is read, how it is written as Markdown, and sections that all
runs share.
"""
