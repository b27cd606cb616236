"""One file per kind of run. A new kind is a module with ``build``, and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pfdl.report.page import Section
from pfdl.report.sections import colored_mnist, contexts, mmads, study
from pfdl.runs import Run

Builder = Callable[[Run, list[str]], Section]

SECTIONS: Mapping[str, Builder] = {one.KIND: one.build for one in (mmads, colored_mnist, contexts, study)}
"""From the kind of a run to what makes its section; a builder adds a sentence to its list for what it cannot read."""
