"""Checkouts of mlx-lm as its maintainers have them, with or without a mistake."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

RIGHT = "N, offset=self._idx, left_padding=self.left_padding, **kwargs"
WRONG = "N, offset=self._idx, **kwargs"


def make_checkout(folder, module="mlx_lm"):
    """A repository with the installed library's code, committed; its folder."""
    installed = Path(importlib.util.find_spec(module).origin).parent
    unwanted = shutil.ignore_patterns("__pycache__")
    shutil.copytree(installed, folder / module, ignore=unwanted)
    git(folder, "init", "-q")
    commit(folder)
    return folder


def commit(folder):
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "as it is")


def git(folder, *words):
    identity = ("-c", "user.email=a@example.org", "-c", "user.name=a")
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def plant_mistake(folder):
    """Batches no longer mask the padding at the left of their shorter prompts."""
    change(folder, "mlx_lm/models/cache.py", RIGHT, WRONG)


def change(folder, name, old, new):
    """Replace one text in a file of a checkout."""
    file = folder / name
    text = file.read_text()
    assert text.count(old) == 1, f"{name} has {old!r} {text.count(old)} times"
    file.write_text(text.replace(old, new))
