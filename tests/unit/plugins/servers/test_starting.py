"""A server's module is started with patches in its own process, and its own arguments."""

import os
import subprocess
import sys

from conformance.plugins.servers.planting import command, hits_of

SERVER = """
import sys

def word():
    return "right"

def main():
    print(word(), *sys.argv[1:])
"""
PLANTED = """
import small_server
from conformance.core.faults.patching import replace
from conformance.plugins.servers.planting import served_fault, served_mend

@served_fault("S1.x", engine="e", fault_class="c", source="s", kills=("served_alone",))
def wrong_word(hits):
    '''It is wrong.'''
    return replace(small_server, "word", lambda: hits.hit() or "wrong")

@served_mend("some-entry")
def mended_word(hits):
    '''It is mended.'''
    return replace(small_server, "word", lambda: hits.hit() or "mended")
"""


def started(folder, *names):
    """What the server says, and how often each patch took effect."""
    (folder / "small_server.py").write_text(SERVER, encoding="utf-8")
    (folder / "planted.py").write_text(PLANTED, encoding="utf-8")
    runs = command("small_server", folder, [f"planted:{name}" for name in names])
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *runs, "--port", "1"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split(), hits_of(folder, len(names))


def test_a_fault_takes_place_in_the_servers_process(tmp_path):
    assert started(tmp_path, "wrong_word") == (["wrong", "--port", "1"], [1])


def test_of_two_patches_the_last_one_is_the_outer_one(tmp_path):
    assert started(tmp_path, "wrong_word", "mended_word") == (["mended", "--port", "1"], [0, 1])
