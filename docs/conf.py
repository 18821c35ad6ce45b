"""Configuration of the documentation site. `make docs` builds it with warnings as errors; see docs/README.md."""

import sys
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import generate  # noqa: E402
from generate import links  # noqa: E402

from pyro_prme.explorer.pictures import write_plays  # noqa: E402

project = "pyro_prme"
author = "the pyro_prme authors"
release = metadata.version("pyro-prme")
html_title = "pyro_prme"

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "myst_nb",
]
exclude_patterns = ["README.md", "generated/*"]

# Docstrings: Google style, types from the signatures, `name` in single backticks is a reference where it can be one.
default_role = "py:obj"
autodoc_default_options = {"members": True, "show-inheritance": True, "ignore-module-all": True}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
python_use_unqualified_type_names = True
maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"
viewcode_follow_imported_members = False

# Tutorials are shown as they are stored; nothing is executed here.
nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["amsmath", "attrs_block", "colon_fence", "deflist", "dollarmath"]
myst_dmath_double_inline = True
myst_heading_anchors = 3

# MathJax as one file of the site: it draws SVG, so that it needs neither network nor fonts, also under file://.
MATHJAX = next(f for f in metadata.files("sphinx-mathjax-offline") or [] if f.name == "tex-svg.js")
mathjax_path = "tex-svg.js"

html_theme = "furo"
html_static_path = ["static", str(MATHJAX.locate())]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_show_sphinx = False
html_show_search_summary = False  # would fetch pages, which a browser refuses under file://
html_copy_source = False
html_show_copyright = False
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"


def write_play_page(app, error):
    """The pictures to play with, as a page of their own."""
    if error is None and app.builder.format == "html":
        write_plays(Path(app.outdir) / "play.html")


def level_captions(app, pagename, templatename, context, doctree):
    """The captions of the navigation are headings, and a heading has a level."""
    if tree := context.get("furo_navigation_tree"):
        context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')


def setup(app):
    """Generated pages and notebooks come in before Sphinx looks for sources; see docs/generate."""
    app.connect("builder-inited", lambda app: generate.write(Path(app.srcdir)))
    app.connect("build-finished", write_play_page)
    app.connect("html-page-context", level_captions, priority=900)  # after the theme has made the navigation
    app.connect("autodoc-process-docstring", links.escape_bars)
    app.connect("autodoc-skip-member", links.skip)
    app.connect("missing-reference", links.resolve)
