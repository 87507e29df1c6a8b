"""Work for other processes, which import it by its name."""

import os


def double(number):
    """Twice the number; three is deadly."""
    if number == 3:
        os._exit(1)
    return 2 * number
