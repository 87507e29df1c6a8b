"""What is put into a server is asked for here and entered there; every record can be entered."""

import inspect
from contextlib import nullcontext

import pytest

from conformance.checks.expectations import load_expectations
from conformance.core.faults import Hits
from conformance.plugins.servers import planting, starting
from conformance.plugins.servers.mends import mlx_lm as lm_mends
from conformance.plugins.servers.mends import mlx_vlm as vlm_mends
from conformance.power.faults.mlx_lm import rows
from conformance.power.faults.servers import mlx_lm as lm_faults
from conformance.power.faults.servers import mlx_vlm as vlm_faults

FAULTS = (*lm_faults.FAULTS, *vlm_faults.FAULTS)
MENDS = (*lm_mends.MENDS, *vlm_mends.MENDS)
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


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.place)
def test_a_record_is_found_in_the_server_and_can_be_entered(planted):
    with starting.patch_at(planted.place, Hits()):
        pass


def test_a_librarys_own_fault_keeps_its_code():
    (ours,) = (f for f in lm_faults.FAULTS if f.name == "B8.end-taken-for-a-removal")
    assert ours.engine == "mlx_lm_server"
    assert ours.inject.patch is rows.end_taken_for_a_removal.inject


def test_each_fault_is_caught_by_scenarios_of_servers():
    for fault in FAULTS:
        assert all(name.startswith(("served_", "cost_")) for name in fault.scenarios), fault.key


def test_each_entry_about_a_server_has_a_mend_and_each_mend_an_entry():
    about = [e for e in load_expectations().defects if "_server" in e.engines[0]]
    # One that costs too much gives right answers: it needs none.
    entries = {e.id for e in about if any(not name.startswith("cost_") for name in e.verdicts)}
    assert entries <= {name for mend in MENDS for name in mend.defects} <= {e.id for e in about}
    assert all(inspect.isfunction(mend.repair.patch) for mend in MENDS)
