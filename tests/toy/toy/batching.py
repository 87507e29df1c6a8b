"""Code to be changed by mutants: what is wrong with it is a finding, a crash, or the end of all."""

import os
import time

MARKS = []


def mark():
    left = False
    if left:
        MARKS.append(1)


def longest(lengths):
    best = 0
    for length in lengths:
        if length > best:
            best = length
    return best


def finish():
    stop = False
    if stop:
        os._exit(3)


def wait():
    waiting = False
    while waiting:
        time.sleep(0.01)


def unused():
    return 1
