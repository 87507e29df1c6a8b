"""What is put into a server is asked for here and entered there; every record can be entered."""

import inspect
import types
from contextlib import nullcontext

import mlx.core as mx
import pytest
from mlx import nn

from conformance.checks.expectations import load_expectations
from conformance.core.faults import Hits
from conformance.core.phases import ForwardCall
from conformance.plugins.mlx_vlm import mends as vlm_library
from conformance.plugins.servers import planting, starting
from conformance.plugins.servers.managed import ManagedEngine
from conformance.plugins.servers.mends import mlx_lm as lm_mends
from conformance.plugins.servers.mends import mlx_vlm as vlm_mends
from conformance.power.faults.mlx_lm import rows
from conformance.power.faults.servers import mlx_lm as lm_faults
from conformance.power.faults.servers import mlx_vlm as vlm_faults

FAULTS = (*lm_faults.FAULTS, *vlm_faults.FAULTS)
MENDS = (*lm_mends.MENDS, *vlm_mends.MENDS)
LIBRARY_MENDS = vlm_library.MENDS  # the single stream's
PLANTED = [fault.inject for fault in FAULTS] + [mend.repair for mend in MENDS]


def at_the_end(hits):
    hits.hit()
    return nullcontext()


def test_servers_have_what_is_asked_for_inside_the_block():
    one, other = planting.InServer(at_the_end), planting.InServer(at_the_end)
    hits = Hits()
    assert planting.wanted() == []
    with one(hits):
        with other(Hits()):
            assert [place for place, _ in planting.wanted()] == [f"{__name__}:at_the_end"] * 2
        with pytest.raises(KeyError), other(Hits()):
            {}["what a case raises"]
        assert len(planting.wanted()) == 1
    assert planting.wanted() == []
    assert hits.count == 0  # it counts where it takes place


def test_a_library_s_mend_is_put_into_the_server_and_into_this_process():
    hits = Hits()
    with ManagedEngine.injected(at_the_end)(hits):
        assert planting.wanted() == [(f"{__name__}:at_the_end", hits)]
        assert hits.count == 1
    own = planting.InServer(at_the_end)
    assert ManagedEngine.injected(own) is own


def test_a_server_without_patches_is_run_as_its_users_run_it(tmp_path):
    assert planting.command("mlx_lm.server", tmp_path, []) == ["-m", "mlx_lm.server"]
    *_, folder, count, place, module = planting.command("mlx_lm.server", tmp_path, ["a:b"])
    assert (folder, count, place, module) == (str(tmp_path), "1", "a:b", "mlx_lm.server")


def test_effects_are_counted_in_files(tmp_path):
    first = starting.NotedHits(planting.hits_file(tmp_path, 0))
    first.hit()
    first.hit_if([])
    first.hit_if([1])
    assert first.count == 2
    assert planting.hits_of(tmp_path, 2) == [2, 0]


def test_each_record_is_found_in_the_server_and_can_be_entered():
    failed = {}
    for planted in PLANTED:
        try:
            with starting.patch_at(planted.place, Hits()):
                pass
        except Exception as error:  # noqa: BLE001 - whatever it is, the others are tried
            failed[planted.place] = repr(error)
    assert failed == {}


def test_a_librarys_own_fault_keeps_its_code():
    (ours,) = (f for f in lm_faults.FAULTS if f.name == "B8.end-taken-for-a-removal")
    assert ours.engine == "mlx_lm_server"
    assert ours.inject.patch is rows.end_taken_for_a_removal.inject


def test_each_fault_is_caught_by_scenarios_of_servers():
    for fault in FAULTS:
        assert all(name.startswith(("served_", "cost_")) for name in fault.scenarios), fault.key


def test_each_entry_about_a_server_has_a_mend_and_each_mend_an_entry():
    about = [e for e in load_expectations().defects if "_server" in e.engines[0]]
    # One that costs too much gives right answers: it needs none. A mend of seeds would change the
    # batch alone: the answer that it must equal is the server's own, given without mends.
    entries = {e.id for e in about if any(not name.startswith("cost_") for name in e.verdicts)}
    entries -= {"server-seeds-of-32-bits"}
    mended = {name for mend in MENDS for name in mend.defects}
    assert entries <= mended | {name for mend in LIBRARY_MENDS for name in mend.defects}
    assert mended <= {e.id for e in about}
    assert all(inspect.isfunction(mend.repair.patch) for mend in MENDS)


class Model(nn.Module):
    def __call__(self, tokens, cache=None):
        return tokens


class Generator:
    """Prefills a prompt of three tokens, then makes one token a step, then rests."""

    def __init__(self, model):
        self.model, self.lengths = model, [3, 1]

    def next(self):
        for length in self.lengths[:1]:
            self.model(mx.zeros((2, length), mx.int32))
        del self.lengths[:1]
        return "responses"


@pytest.fixture
def hits(tmp_path, monkeypatch):
    module = types.ModuleType("batching")
    module.BatchGenerator = Generator
    monkeypatch.setitem(__import__("sys").modules, "batching", module)
    return starting.NotedHits(tmp_path / "hits-0")


def played(hits):
    with planting._noted("batching", hits):
        for generator in [Generator(model) for model in [Model()] * 2]:
            assert [generator.next() for _ in range(4)] == ["responses"] * 4


def test_each_step_that_computes_is_noted_once_and_read_once(hits, tmp_path):
    steps = planting.Steps(tmp_path)
    assert steps.new() == ()
    played(hits)
    found = steps.new(left=True)
    calls = [step.forwards for step in found]
    assert calls == [(ForwardCall(2, 3),), (ForwardCall(2, 1),)] * 2
    assert all(step.left and step.nbytes >= 0 for step in found)
    assert steps.new() == []
    assert planting.Steps(tmp_path).new() == []  # those of before are another schedule's


def test_a_line_that_is_being_written_is_read_when_it_is_whole(hits, tmp_path):
    steps, file = planting.Steps(tmp_path), tmp_path / "steps.jsonl"
    file.write_text('{"nbytes":1,"calls":[[1,2]]}\n{"nbytes":2,')
    assert [step.nbytes for step in steps.new()] == [1]
    with file.open("a") as more:
        more.write('"calls":[[1,1]]}\n')
    assert [step.nbytes for step in steps.new()] == [2]


def test_of_a_group_the_first_process_notes(hits, tmp_path, monkeypatch):
    monkeypatch.setenv("MLX_RANK", "1")
    played(hits)
    assert not planting.Steps(tmp_path).new()
