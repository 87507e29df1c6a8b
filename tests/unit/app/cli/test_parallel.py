"""Work in several processes: in order, and the crash of one costs only its item."""

import multiprocessing
import time

import pytest
from miniatures.workers import double, hungry, mark, marked, prints, slowly

from conformance.app.cli import parallel
from conformance.app.cli.parallel import as_they_come, in_processes


def crashed(number):
    return -number


@pytest.mark.parametrize("jobs", [1, 2, None])
def test_results_come_in_order(jobs):
    assert list(in_processes(double, [1, 2, 4], jobs=jobs, on_crash=crashed)) == [2, 4, 8]


def test_an_item_that_crashes_its_process_costs_only_itself():
    assert list(in_processes(double, [1, 3, 2], jobs=2, on_crash=crashed)) == [2, -3, 4]


def test_the_crash_of_one_costs_no_other_its_result():
    found = as_they_come(double, [1, 3, 2, 5, 6], jobs=2, on_crash=crashed)
    assert sorted(found) == [(0, 2), (1, -3), (2, 4), (3, 10), (4, 12)]


def test_what_is_ready_first_comes_first():
    found = as_they_come(slowly, [20.0, 0.0], jobs=2, on_crash=crashed)
    assert next(found) == (1, 0.0)
    found.close()


def test_left_early_it_ends_its_processes():
    found = as_they_come(slowly, [0.0, 60.0], jobs=2, on_crash=crashed)
    assert next(found) == (0, 0.0)
    start = time.perf_counter()
    found.close()
    assert time.perf_counter() - start < 20
    assert not multiprocessing.active_children()


def test_an_item_that_takes_too_much_memory_is_ended_and_reported(monkeypatch, capsys):
    monkeypatch.setattr(parallel, "fair_limit", lambda workers: 600_000_000 // workers)
    start = time.perf_counter()
    assert list(in_processes(hungry, [1, 3, 2], jobs=2, on_crash=crashed)) == [1, -3, 2]
    assert time.perf_counter() - start < 30
    assert "took more than its part of the memory, 0.3 GB, and was ended" in capsys.readouterr().err


def test_a_single_item_may_crash_too():
    assert list(in_processes(double, [3], jobs=2, on_crash=crashed)) == [-3]


def test_nothing_to_do():
    assert list(in_processes(double, [], jobs=2, on_crash=crashed)) == []


@pytest.mark.parametrize("prepare", [mark, None])
def test_each_process_is_prepared_before_its_first_item(prepare):
    found = in_processes(marked, [1, 2, 3], jobs=2, on_crash=crashed, prepare=prepare)
    assert list(found) == [prepare is not None] * 3


def test_what_models_print_there_is_plain_text(capfd):
    assert list(in_processes(prints, [1, 2], jobs=2, on_crash=crashed)) == [1, 2]
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("", "\\x1b[2J" * 2)
