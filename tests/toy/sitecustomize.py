"""Puts the toy plugin, alone, into every process whose PYTHONPATH begins with this folder.

Tests of the command line and of the pytest plugin need verdicts of every kind at will, in xdist's
workers too. So here no library is loaded and ``Session.run`` follows a script (``toy_plugin.py``).
"""

import os
import sys
from importlib.metadata import EntryPoint

from conformance.run import hosting

PLUGIN = os.environ.get("TOY_PLUGIN", "toy_plugin")
hosting._entry_points = lambda: [EntryPoint("toy", PLUGIN, "mlx_conformance")]

if os.environ.get("TOY_EXITS_EARLY") and "own_process" in " ".join(sys.orig_argv):
    sys.exit(os.environ["TOY_EXITS_EARLY"])
