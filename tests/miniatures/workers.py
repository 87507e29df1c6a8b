"""Work for other processes, which import it by its name."""

import os
import time


def double(number):
    """Twice the number; three is deadly."""
    if number == 3:
        os._exit(1)
    return 2 * number


def slowly(seconds):
    """The seconds that it took."""
    time.sleep(seconds)
    return seconds
