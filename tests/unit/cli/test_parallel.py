"""Work in several processes: in order, and the death of one costs only its item."""

import pytest
from miniatures.workers import double

from conformance.cli.parallel import in_processes


def dead(number):
    return -number


@pytest.mark.parametrize("jobs", [1, 2, None])
def test_results_come_in_order(jobs):
    assert list(in_processes(double, [1, 2, 4], jobs=jobs, died=dead)) == [2, 4, 8]


def test_an_item_that_kills_its_process_costs_only_itself():
    assert list(in_processes(double, [1, 3, 2], jobs=2, died=dead)) == [2, -3, 4]


def test_nothing_to_do():
    assert list(in_processes(double, [], jobs=2, died=dead)) == []
