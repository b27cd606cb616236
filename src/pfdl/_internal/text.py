"""Words from files, folders and users: made harmless before they are shown, and read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

_BEFORE_FORMULA = re.compile(r"""(^|[;\t|\n])(?=[ "]*[=+@\t-])""")
"""Where a spreadsheet would find a formula: at the beginning, or behind what may separate cells or
end a line.
"""

_NAMES_SHOWN = 30
_LETTERS_SHOWN = 60
"""Of what a file names, in one sentence."""


def printable(text: object) -> str:
    r"""Return a text whose control characters are written out, so that a name cannot steer the
    terminal.

    Names of classes, contexts and files come from folders that somebody else may have made. Escape
    sequences in them could clear the screen, change its title or hide what else is printed; so
    could marks that reverse the reading direction.

    Args:
        text: What to show, such as a name.

    Returns:
        The same, with everything that is not printable as ``\x1b``, ``\n`` or the like. Surrogates,
        which stand for bytes that are no UTF-8, are written out too, because a terminal cannot
        encode them.

    Example:
        >>> print(printable("cat\x1b[2J"))
        cat\x1b[2J
    """
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in str(text)
    )


def printable_lines(text: object) -> str:
    """Return a message of one or more lines with its control characters written out, the line ends
    excepted.
    """
    return "\n".join(map(printable, str(text).split("\n")))


def spreadsheet_cell(text: str) -> str:
    """Return a cell of a CSV table for people that a spreadsheet takes for text, not for a formula.

    A spreadsheet computes what begins with ``=``, ``+``, ``-`` or ``@``, and a formula can send
    what else is in the sheet elsewhere. The apostrophe in front is the spreadsheet's own mark for
    text. It also goes behind a ``;``, tab or ``|`` in the text: where the list separator is one of
    these, a cell begins there. A carriage return, which ends a line for spreadsheets but not for
    Python's CSV writer, becomes a space.

    Example:
        >>> spreadsheet_cell("=1+1"), spreadsheet_cell("a;=1+1"), spreadsheet_cell("a = b")
        ("'=1+1", "a;'=1+1", 'a = b')
    """
    return _BEFORE_FORMULA.sub(r"\1'", text.replace("\r", " "))


def quoted(names: Iterable[object]) -> str:
    """Return names in quotes for a sentence, the first of very many, and of a very long one its
    beginning.

    Example:
        >>> quoted(["a", 2]), quoted(["x" * 99]) == repr("x" * 60 + "…")
        ("'a', '2'", True)
    """
    texts = [str(name) for name in names]
    shown = [
        repr(text if len(text) <= _LETTERS_SHOWN else f"{text[:_LETTERS_SHOWN]}…")
        for text in texts[:_NAMES_SHOWN]
    ]
    if len(texts) > _NAMES_SHOWN:
        shown.append(f"{len(texts) - _NAMES_SHOWN} more")
    return ", ".join(shown)


def json_or_text(text: str) -> Any:
    """Read a value that a user typed: JSON if it is that, otherwise the text itself.

    Example:
        >>> json_or_text("0.1"), json_or_text("[64, 64]"), json_or_text("strict")
        (0.1, [64, 64], 'strict')
    """
    try:
        return json.loads(text)
    except ValueError:
        return text


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a guess of which known names a user meant, for the end of a sentence; nothing if none
    is near.

    Example:
        >>> did_you_mean("epoch", ["epochs", "seed"]), did_you_mean("colour", ["epochs", "seed"])
        ("; did you mean 'epochs'?", '')
        >>> did_you_mean("lr", ["epochs", "learning_rate"])
        "; did you mean 'learning_rate'?"
    """
    names = list(known)
    abbreviated = [candidate for candidate in names if _initials(candidate) == name]
    close = abbreviated or get_close_matches(name, names, n=3)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


def _initials(name: str) -> str:
    return "".join(word[:1] for word in name.split("_"))
