"""Work for other processes, which import it by its name."""

import os
import time


def double(number):
    """Twice the number; three ends the process."""
    if number == 3:
        os._exit(1)
    return 2 * number


def slowly(seconds):
    """The seconds that it took."""
    time.sleep(seconds)
    return seconds


def hungry(number):
    """The number; three takes half a gigabyte, and keeps it."""
    taken = b"." * (500_000_000 if number == 3 else 1)
    time.sleep(60 if number == 3 else 0)
    return number * len(taken)


def mark():
    """Leaves a mark in this process."""
    os.environ["MARKED"] = "1"


def marked(_):
    """Whether this process has the mark."""
    return "MARKED" in os.environ


def prints(number):
    """Prints a command to the terminal, as a model may."""
    os.write(1, b"\x1b[2J")
    return number
