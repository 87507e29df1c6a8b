"""Which GPUs there are, which of them are chosen, and who gets which."""

import ctypes
import os
from types import SimpleNamespace

import pytest

from conformance.core import devices
from conformance.core.devices import Turns, chosen, in_words, present, use
from conformance.core.errors import ConformanceError


@pytest.fixture(autouse=True)
def four(monkeypatch):
    monkeypatch.setattr(devices, "_installed", lambda package: package == "mlx-cuda-13")
    monkeypatch.setenv(devices.VISIBLE, "4,5,6,GPU-8f")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["run", "--devices", "2"], "2"),
        (["run", "--devices=0,1", "-v"], "0,1"),
        (["run", "--devices", "2", "--devices", "all"], "all"),
        (["run", "--devices"], ""),
        ([], ""),
    ],
)
def test_the_option_is_found_among_words(words, text):
    assert in_words(words) == text


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("1", ("4",)),
        ("3", ("4", "5", "6")),
        ("all", ("4", "5", "6", "GPU-8f")),
        ("5,4", ("5", "4")),
        ("5,", ("5",)),
        ("GPU-8f", ("GPU-8f",)),
        ("4,4", ("4",)),
    ],
)
def test_a_number_a_list_or_all(text, names):
    assert chosen(text) == names


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0", "0 devices are wanted, and there are 4 here"),
        ("5", "a list has a comma: '5,'"),
        ("5,7", "there is no device '7' here, only 4, 5, 6, GPU-8f"),
        ("first", "there is no device 'first' here"),
        (",", "',' names no device"),
        ("²", "there is no device '²' here"),
    ],
)
def test_what_is_not_there_is_named(text, why):
    with pytest.raises(ConformanceError, match=r"^--devices: ") as caught:
        chosen(text)
    assert why in str(caught.value)


def test_without_cuda_in_mlx_no_gpu_is_of_use(monkeypatch):
    monkeypatch.setattr(devices, "_installed", lambda _: False)
    with pytest.raises(ConformanceError, match="no CUDA build of mlx is installed here"):
        chosen("1")


def test_a_machine_without_a_gpu_says_so(monkeypatch):
    monkeypatch.setenv(devices.VISIBLE, "")
    with pytest.raises(ConformanceError, match="there is no NVIDIA GPU"):
        chosen("all")


def test_where_nothing_is_chosen_the_driver_counts(monkeypatch):
    def count(number):
        number._obj.value = 3
        return 0

    monkeypatch.delenv(devices.VISIBLE)
    driver = SimpleNamespace(nvmlInit_v2=lambda: 0, nvmlDeviceGetCount_v2=count)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver)
    assert present() == ("0", "1", "2")
    driver.nvmlInit_v2 = lambda: 999
    assert present() == ()


def test_without_a_driver_there_is_none(monkeypatch):
    def missing(_):
        raise OSError

    monkeypatch.delenv(devices.VISIBLE)
    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert present() == ()


def test_what_is_used_is_all_that_is_seen_and_may_be_chosen_again():
    assert use("6,4") == ("6", "4")
    assert present() == ("6", "4") == chosen("6,4") == chosen("all") == chosen("2")


@pytest.mark.parametrize(("visible", "seen"), [("4,5", "4"), ("GPU-8f", "GPU-8f"), ("", "")])
def test_without_a_choice_the_first_is_seen_alone(monkeypatch, visible, seen):
    monkeypatch.setenv(devices.VISIBLE, visible)
    devices.see_first()
    assert os.environ[devices.VISIBLE] == seen


def test_without_cuda_in_mlx_nothing_is_hidden(monkeypatch):
    monkeypatch.setattr(devices, "_installed", lambda _: False)
    devices.see_first()
    assert os.environ[devices.VISIBLE] == "4,5,6,GPU-8f"


def test_workers_take_turns_and_a_new_one_gets_what_was_left():
    turns = Turns(("0", "1"))
    assert [turns.take(f"gw{i}") for i in range(5)] == ["0", "1", "0", "1", "0"]
    turns.give_back("gw1")
    turns.give_back("gw0")
    assert [turns.take(f"gw{i}") for i in (5, 6, 7)] == ["1", "0", "1"]


@pytest.mark.parametrize(("names", "most"), [((), 5), ("0", 5), ("01", 3), ("012345", 1)])
def test_how_many_workers_share_one(names, most):
    assert Turns(tuple(names)).most(5) == most


def test_without_a_choice_workers_see_what_there_is():
    assert Turns(()).take("gw0") == ""


def test_versions_of_packages_decide_what_is_installed(monkeypatch):
    monkeypatch.undo()
    assert devices._installed("pytest")
    assert not devices._installed("mlx-cuda-0")
