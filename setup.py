"""Make README readable where it has no repository beside it, as on a package index; all else is in
pyproject.toml.

With ``PFDL_REPOSITORY=https://HOST/OWNER/pfdl/blob/main`` its links lead there, and so does that of
the distribution; without, they are plain text, and the distribution has none.
"""

import os
import re
from pathlib import Path

from setuptools import setup


def portable(readme: str, repository: str = "") -> str:
    """Return the text with its relative links made absolute, or, where no repository is named, into
    plain text.
    """
    if repository:
        return re.sub(r"\]\((?!https?://|#)", f"]({repository.rstrip('/')}/", readme)
    without_pictures = re.sub(
        r"^!\[[^\]]*\]\((?!https?://)[^)]*\)\n+", "", readme, flags=re.MULTILINE
    )
    return re.sub(r"\[([^\]]*)\]\((?!https?://|#)[^)]*\)", r"\1", without_pictures)


if __name__ == "__main__":
    readme = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
    repository = os.environ.get("PFDL_REPOSITORY", "")
    setup(
        long_description=portable(readme, repository),
        long_description_content_type="text/markdown",
        project_urls={"Repository": repository} if repository else {},
    )
