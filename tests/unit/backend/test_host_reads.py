"""Waits of the host are counted where they are, and only where something is to be waited for."""

import mlx.core as mx
import numpy as np
import pytest

from conformance.backend.host_reads import host_reads


def computing():
    return mx.ones(3) + 1


def converted(array):
    return np.array(array)  # looked up when it is called


WAYS = {
    "item": lambda array: array[0].item(),
    "tolist": lambda array: array.tolist(),
    "bool": lambda array: bool(array[0] > 0),
    "eval": lambda array: mx.eval({"rows": [array]}),
    "array": converted,
}


@pytest.mark.parametrize("name", WAYS)
def test_a_wait_has_its_place(name):
    with host_reads() as places:
        WAYS[name](computing())
    (place,) = places
    where, _, what = place.partition(" ")
    assert where.rpartition(":")[0].endswith("backend/test_host_reads.py")
    assert what == name


def test_what_is_computed_is_not_waited_for_again():
    with host_reads() as places:
        array = computing()
        mx.eval(array)
        array.tolist()
        array.tolist()
        other = computing()
        other.tolist()
    assert [place.rpartition(" ")[2] for place in places] == ["eval", "tolist"]


def test_what_is_only_begun_is_waited_for():
    with host_reads() as places:
        array = computing()
        mx.async_eval(array)
        assert places == []
        array.tolist()
    assert len(places) == 1


def test_reads_of_adapters_are_not_counted(monkeypatch):
    monkeypatch.setitem(globals(), "__name__", "conformance.plugins.mlx_lm.engine")
    with host_reads() as places:
        computing().tolist()
    assert places == []


def test_reads_of_faults_are():
    faulty = {"__name__": "conformance.power.faults.mlx_lm.cost"}
    exec("def read(array): return array.tolist()", faulty)
    with host_reads() as places:
        faulty["read"](computing())
    assert len(places) == 1


def test_nothing_is_left_behind():
    before = (mx.array.tolist, mx.array.item, mx.eval, np.array, np.asarray)
    with host_reads() as places:
        assert mx.eval is not before[2]
    assert (mx.array.tolist, mx.array.item, mx.eval, np.array, np.asarray) == before
    computing().tolist()
    assert places == []
