"""Colour, and NO_COLOR."""

import re

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9]")


def test_a_terminal_gets_colour(toy_run):
    done = toy_run("--family", "broken", FORCE_COLOR="1", TERM="xterm")
    assert COLOUR.search(done.out), done


def test_no_color_is_obeyed(toy_run):
    done = toy_run("--family", "broken", FORCE_COLOR="1", TERM="xterm", NO_COLOR="1")
    assert not COLOUR.search(done.out), done
    assert "X!" in done.out, "what is unexpected can be seen without colour"
