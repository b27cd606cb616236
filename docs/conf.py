"""How Sphinx builds these pages: ``make docs``. Nothing is fetched, neither then nor by a reader's
browser.
"""

import re
from pathlib import Path
from urllib.request import urlretrieve

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from typer.cli import get_docs_for_click
from typer.main import get_command
from typer.models import Context

import pfdl
from pfdl.cli.main import app as pfdl_app

project = "pfdl"
author = "The pfdl developers"
release = pfdl.__version__
language = "en"
smartquotes_action = "qe"  # quotes and dots, but "--" stays the beginning of an option

extensions = [
    *("myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.intersphinx"),
    *("sphinx.ext.napoleon", "sphinx.ext.viewcode", "sphinx_copybutton"),
]
templates_path = ["_templates"]
exclude_patterns = ["tutorials/*/*"]
html_theme = "furo"
html_title = f"pfdl {release}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_copyright = False
html_theme_options = {"top_of_page_buttons": []}

copybutton_prompt_text = "$ "
myst_heading_anchors = 3
# ``python notest`` blocks are Python; tests/test_docs.py does not run them.
myst_number_code_blocks = []
nb_execution_mode = "force"  # the notebooks hold no outputs: they run whenever the pages are built
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
suppress_warnings = ["myst.header"]  # a page that is included from elsewhere begins where it likes

autodoc_member_order = "bysource"
autodoc_default_options = {
    "exclude-members": "set_fit_request, set_predict_request, set_score_request"
}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_inherit_docstrings = False
autodoc_type_aliases = {
    name: name for name in ("FloatArray", "IndexArray", "ArrayLike", "OptimizerFactory")
}
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

# Links to other projects need their inventories, which `make inventories` fetches; else their names
# are plain text.
INVENTORIES = Path(__file__).parent / "_inventories"
PROJECTS = {
    "python": "https://docs.python.org/3/",
    "numpy": "https://numpy.org/doc/stable/",
    "pandas": "https://pandas.pydata.org/docs/",
    "sklearn": "https://scikit-learn.org/stable/",
    "torch": "https://pytorch.org/docs/stable/",
}
intersphinx_mapping = {
    name: (address, str(INVENTORIES / f"{name}.inv"))
    for name, address in PROJECTS.items()
    if (INVENTORIES / f"{name}.inv").is_file()
}

nitpicky = True
# A name of our own that leads nowhere is a mistake; those of other projects and of the engine room
# have no pages here.
nitpick_ignore_regex = [
    ("py:.*", r"(?!pfdl\.).*"),
    ("py:.*", r"pfdl\.decorrelation\.(kernels|distributed|partial_decorrelation)\..*"),
    ("py:.*", r"pfdl\.tabular\.(screening\.Outcome|environments\.Environments)"),
    ("py:.*", r"pfdl\..*\.Self"),  # of typing, under the name of the module that imports it
    ("py:.*", r"pfdl\.contexts\.(sources|_arrays|balancing)\..*"),
    ("py:.*", r"pfdl\.(parts|data\.features|vision\.properties|vision\.embedding)\..*"),
    ("py:.*", r"pfdl\.objectives\.penalties\.environments\..*"),
    ("py:.*", r"pfdl\.tabular\.selector\.LeakWarning"),
]


def fetch_inventories() -> None:
    """Fetch the inventories of the projects that these pages can link to."""
    INVENTORIES.mkdir(exist_ok=True)
    for name, address in PROJECTS.items():
        urlretrieve(f"{address}objects.inv", INVENTORIES / f"{name}.inv")


def _math_as_mathml(translator: object, node: nodes.math | nodes.math_block) -> None:
    """Browsers draw MathML by themselves: no script, no font, nothing to fetch."""
    body = translator.body  # type: ignore[attr-defined]
    as_block = isinstance(node, nodes.math_block)
    # What the converter does not know, and MathML does not need: brackets and fractions find their
    # size themselves.
    text = (
        re.sub(r"\\[Bb]ig(?![a-zA-Z])", "", node.astext())
        .replace(r"\tfrac", r"\frac")
        .replace(r"\textstyle", "")
    )
    formula = tex2mathml(
        r"\begin{aligned}" + text + r"\end{aligned}" if r"\\" in text else text, as_block=as_block
    )
    body.append(f'<div class="math">{formula}</div>' if as_block else formula)
    raise nodes.SkipNode


def _write_commands(app: Sphinx) -> None:
    """Write the reference of all commands, from the parser that runs them."""
    command = get_command(pfdl_app)
    text = get_docs_for_click(
        obj=command, ctx=Context(command, info_name="pfdl"), name="pfdl", title="Commands"
    )
    groups = [command, *(one for one in command.commands.values() if hasattr(one, "commands"))]
    for name, one in (pair for group in groups for pair in group.commands.items()):
        sentence = re.split(r"(?<=\.)\s", " ".join((one.help or "").split()))[0]
        line = f"* `{name}`: {sentence}"  # in full: Typer cuts it to the width of a terminal
        text = re.sub(
            rf"^\* `{name}`: .*$", lambda found, line=line: line, text, flags=re.MULTILINE
        )
    examples = re.compile(r"(?<!```console\n)^(?:\$ .*\n+)+", flags=re.MULTILINE)
    text = examples.sub(
        lambda found: "```console\n" + re.sub(r"\n+", "\n", found[0]) + "```\n\n", text
    )
    (Path(app.srcdir) / "reference" / "commands.md").write_text(text, encoding="utf-8")


def _leave_pages_of_the_api_to_their_lists(app: Sphinx, env: BuildEnvironment) -> None:
    """Take the pages of single names out of the sidebar, which every page has: with all of them it
    is too long to read, and to write it is half of the work.
    """
    for contents in env.tocs.values():
        for listed in list(contents.findall(addnodes.toctree)):
            if all(name.startswith("reference/api/") for _, name in listed["entries"]):
                listed.parent.remove(listed)


def _keep_underscores(*event: object) -> None:
    """Keep the underscore at the end of a fitted attribute, which RST would take for that of a
    link.
    """
    lines = event[-1]
    assert isinstance(lines, list)
    for number, line in enumerate(lines):
        named = re.sub(r"^(:(?:ivar|vartype) \w+)_:", r"\1\\_:", line)
        lines[number] = named.replace("np.object_", r"np.object\_")


def _name_aliases(*event: object) -> tuple[str, str] | None:
    """Print an alias of a type by its name, where autodoc prints how Python holds it."""
    signature, returned = event[-2:]
    shown = [
        re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", str(part or ""))
        for part in (signature, returned)
    ]
    return (shown[0], shown[1]) if signature else None


def setup(app: Sphinx) -> None:
    """Register the renderer of formulas and the reference of commands."""
    app.connect("autodoc-process-docstring", _keep_underscores, priority=900)  # after napoleon
    app.connect("autodoc-process-signature", _name_aliases)
    app.connect("builder-inited", _write_commands)
    app.connect("env-updated", _leave_pages_of_the_api_to_their_lists)
    app.add_html_math_renderer("mathml", (_math_as_mathml, None), (_math_as_mathml, None))
