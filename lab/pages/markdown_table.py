"""A Markdown table, for the pages of results that a benchmark writes."""

from collections.abc import Sequence


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Return the lines of a table."""
    return [f"| {' | '.join(map(str, row))} |" for row in (columns, ["---"] * len(columns), *rows)]
