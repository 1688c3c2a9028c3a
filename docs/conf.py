"""Sphinx configuration: MyST pages, API pages from docstrings, notebooks as they were stored."""

import shutil
import sys
import tomllib
from pathlib import Path

from sphinx.util.inspect import signature, stringify_signature


HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))

project = "purestate"
author = "the purestate authors"
release = version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "jupyter_execute", "**/.ipynb_checkpoints"]

# The notebooks are written, run and stored in notebooks/; these are copies for this build.
copies = HERE / "notebooks"
shutil.rmtree(copies, ignore_errors=True)
copies.mkdir()
for notebook in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
    shutil.copy(notebook, copies)
nb_execution_mode = "off"
nb_merge_streams = True

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
add_module_names = False
python_use_unqualified_type_names = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = ["Shape"]
napoleon_use_rtype = False

nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(jax|jaxlib|numpy|np|torch|rich|collections|re|os|types)\..*"),
    ("py:class", r".*\b_\w+(\.\w+)?"),  # classes that are nobody's to import
]

html_theme = "furo"
html_title = "purestate"
html_show_sphinx = False
html_copy_source = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def constructor_signature(app, what, name, obj, options, given, annotation):
    """The arguments of a module's constructor; autodoc sees the metaclass's ``(*args, **kwargs)``."""
    if what == "class" and type(obj).__name__ == "ModuleMeta":
        return stringify_signature(
            signature(obj.__init__, bound_method=True), show_annotation=False
        ), None
    return None


def setup(app):
    app.connect("autodoc-process-signature", constructor_signature)
    return {"parallel_read_safe": True}
