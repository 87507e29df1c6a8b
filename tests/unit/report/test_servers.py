"""What a server does is read from the verdicts of the schedules that show it."""

import msgspec
from results_by_hand import make_finding, make_result

from conformance.core.inventory import Inventory
from conformance.core.verdict import ScheduleResult, Verdict
from conformance.report.servers import BEGIN, BEHAVIOURS, END, Answer, compatibility, with_table
from conformance.scenarios.served import SERVED_SCENARIOS


def case(engine, scenario, verdict, *schedules, family="llama", evidence=()):
    """A result whose schedules have these verdicts."""
    made = make_result(f"{engine}/{family}/{scenario}/float32/0", verdict)
    named = tuple(ScheduleResult(name, Verdict(v)) for name, v in schedules)
    return msgspec.structs.replace(made, schedules=named, evidence=tuple(evidence))


def finding(schedule, what, verdict=Verdict.PROTOCOL):
    return msgspec.structs.replace(make_finding(verdict), schedule=schedule, what=what)


def cells(results, applicable=None):
    inventory = Inventory(applicable=applicable or {})
    found = compatibility(results, inventory)
    return {what.text: row for what, row in found.rows}


def test_each_behaviour_has_schedules_that_show_it():
    scenarios = {scenario.name for scenario in SERVED_SCENARIOS}
    assert {what.scenario for what in BEHAVIOURS} == scenarios
    assert len({what.text for what in BEHAVIOURS}) == len(BEHAVIOURS)


def test_a_schedule_decides_for_its_behaviour_alone():
    wrong = case(
        "one_server",
        "served_leaves",
        Verdict.PROTOCOL,
        ("last_slot", "protocol"),
        ("stream", "exact"),
        ("waiting", "tie"),
        evidence=[finding("last_slot", "900 tokens made")],
    )
    found = cells([wrong])
    (last_slot,) = found["a client leaves the last slot"]
    assert (last_slot.answer, last_slot.why) == (Answer.NO, "900 tokens made")
    assert last_slot.evidence is wrong
    (stream,) = found["a client leaves a stream beside others"]
    assert (stream.answer, stream.why) == (Answer.YES, "")
    assert found["a client leaves while it waits"][0].answer is Answer.YES


def test_what_was_not_asked_is_not_what_is_not_offered():
    right = case("one_server", "served_alone", Verdict.EXACT, ("alone", "exact"))
    refused = case("one_server", "served_schemas", Verdict.UNSUPPORTED)
    applicable = {"one_server": {"llama": ("served_alone", "served_ends")}}
    found = cells([right, refused], applicable)
    assert found["short answers beside long ones, ten at once"][0].answer is Answer.NOT_ASKED
    assert found["images beside text"][0].answer is Answer.NOT_OFFERED
    assert found["JSON of a schema, then plain text"][0].answer is Answer.NOT_OFFERED


def test_the_worst_family_decides_and_is_named():
    right = case("a_server", "served_ends", Verdict.EXACT, ("short_beside_long", "exact"))
    wrong = case(
        "a_server",
        "served_ends",
        Verdict.CRASH,
        ("short_beside_long", "crash"),
        family="mamba",
        evidence=[finding("short_beside_long", "it raised", Verdict.CRASH)],
    )
    (cell,) = cells([right, wrong])["short answers beside long ones, ten at once"]
    assert (cell.answer, cell.families) == (Answer.NO, "mamba")


def test_a_case_without_schedules_or_witness_is_not_right():
    gone = case("a_server", "served_slots", Verdict.HANG)
    empty = case("a_server", "served_flood", Verdict.VACUOUS, ("flood", "exact"))
    found = cells([gone, empty])
    assert found["more requests than slots"][0].answer is Answer.NO
    assert found["320 at once, of whom a quarter leave"][0].answer is Answer.NOT_SHOWN


def test_the_table_is_put_between_its_marks():
    results = [case("a_server", "served_stops", Verdict.EXACT, ("stops", "exact"))]
    found = compatibility(results, Inventory())
    text = with_table(f"# Servers\n\n{BEGIN}\nold\n{END}\n\nend\n", found)
    assert text.startswith("# Servers\n")
    assert text.endswith("\n\nend\n")
    assert "old" not in text
    assert "| stop strings | [yes](#case-1) |" in text
    assert '<a id="case-1"></a>`a_server/llama/served_stops/float32/0`' in text
    assert with_table(text, found) == text
    assert with_table("", found).count("a_server") == 3


def test_rows_that_were_not_asked_are_folded_away():
    results = [
        case("one", "served_stops", Verdict.EXACT, ("stops", "exact")),
        case("two", "served_ends", Verdict.EXACT, ("short_beside_long", "exact")),
    ]
    applicable = {
        name: {"llama": tuple({b.scenario for b in BEHAVIOURS})} for name in ("one", "two")
    }
    found = compatibility(results, Inventory(applicable=applicable))
    rows = [what.text for what, _ in found.asked]
    assert rows == ["short answers beside long ones, ten at once", "stop strings"]
    assert len(rows) + len(found.not_asked) == len(BEHAVIOURS)
    assert [what.text for what, _ in found.asked_of(0)] == ["stop strings"]
    assert "short answers beside long ones, ten at once" in found.not_asked_of(0)
    text = with_table("", found)
    table, _, folded = text.partition("<summary>Not asked</summary>")
    assert "| stop strings | [yes](#case-2) | not asked |" in table
    assert "images beside text" not in table
    assert "- images beside text" in folded
