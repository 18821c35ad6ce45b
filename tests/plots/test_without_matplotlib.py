"""Without matplotlib the package works, and pictures say what to install."""

import subprocess
import sys

CODE = """
import sys
sys.modules["matplotlib"] = None  # as if it were not installed
import importlib.util as util
found = util.find_spec
util.find_spec = lambda name, *rest: None if name == "matplotlib" else found(name, *rest)
import pyro_prme.corpora.corpus, pyro_prme.measures
try:
    import pyro_prme.plots
except ImportError as error:
    print(error)
"""


def test_pictures_say_what_to_install():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout == "Pictures need matplotlib: install it with pip install 'pyro-prme[plots]'.\n"
