"""Finds the Chromium that the pages are tested in; run as a script, prints where it is.

Looks at $CHROMIUM, then for the names that Chromium and Chrome go by, then where macOS has them.
"""

import os
import shutil
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
APPLICATIONS = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
MISSING = (
    "the tests of the report's pages need Chromium or Chrome, and there is none; install it "
    "(Debian: apt-get install chromium; macOS: Google Chrome), or name it: CHROMIUM=/path/to/it"
)


def find(environment=os.environ, applications=APPLICATIONS):
    """Its path, or ``None``."""
    given = environment.get("CHROMIUM")
    if given:
        return shutil.which(given)
    named = (shutil.which(name, path=environment.get("PATH")) for name in NAMES)
    there = (path for path in applications if Path(path).is_file())
    return next((path for path in (*named, *there) if path), None)


if __name__ == "__main__":
    found = find()
    sys.exit(print(found) if found else MISSING)
