"""What entries demand of a case and of a whole run: each rule kept, and each rule broken."""

import msgspec
import pytest
from results_by_hand import make_finding, make_result

from conformance.checks.expectations import Defect, Expectations, Refusal
from conformance.checks.expectations.rules import CHECK
from conformance.core.verdict import (
    CaseId,
    Finding,
    MendedResult,
    ScheduleResult,
    Verdict,
)


def defect(name="lost-state", **changes):
    fields = {
        "id": name,
        "engines": ("mlx_lm",),
        "families": ("plamo*",),
        "package": "mlx-lm",
        "versions": ">=0.32.0,<=0.32.2",
        "where": "plamo2.py:1",
        "why": "it is",
        "script": "docs/defects/x.py",
        "verdicts": {"ragged": Verdict.DIVERGED, "invalid": Verdict.PROTOCOL},
    }
    return Defect(**(fields | changes))


def refusal(**changes):
    fields = {
        "id": "metal-only",
        "engines": ("mlx_lm",),
        "families": ("bitnet",),
        "dtypes": ("*",),
        "device": "cpu",
        "text": "metal_kernel",
        "why": "no CPU path",
        "package": "mlx-lm",
    }
    return Refusal(**(fields | changes))


def case(
    verdict="diverged",
    *,
    engine="mlx_lm",
    family="plamo2",
    scenario="ragged",
    dtype="float32",
    seed=0,
    version="0.32.2",
    device="cpu (x86_64)",
    words="",
    **schedules,
):
    return make_result(
        f"{engine}/{family}/{scenario}/{dtype}/{seed}",
        Verdict(verdict),
        expected=False,
        evidence=(Finding(Verdict(verdict), "failure", words),) if words else (),
        versions={"mlx-lm": version},
        device=device,
        schedules=tuple(ScheduleResult(name, Verdict(v)) for name, v in schedules.items()),
    )


def judged(result, *entries):
    kinds = (Defect, Refusal)
    defects, refusals = (tuple(e for e in entries if isinstance(e, kind)) for kind in kinds)
    return Expectations(defects, refusals).apply(result)


def expected(result, *entries):
    return judged(result, *entries).expected


def those_expected(*entries, **more):
    """Of all verdicts that a case can have the ones that are expected."""
    return {verdict for verdict in Verdict if expected(case(verdict, **more), *entries)}


GOOD = {Verdict.EXACT, Verdict.TIE}
NUMERIC = {Verdict.DRIFT, Verdict.DIVERGED, Verdict.NAN}


def test_without_an_entry_only_exact_and_tie_are_expected():
    assert those_expected() == GOOD
    assert {judged(case(verdict)).known for verdict in Verdict} == {None}


def test_the_named_verdict_is_expected_and_known():
    result = judged(case("diverged"), defect())
    assert result.expected
    assert result.known == "lost-state"
    assert result.evidence == ()


def test_a_defect_that_hangs_on_time_may_stay_hidden_and_shows_as_said():
    entry = defect(by_time=True)
    for verdict, right in (("exact", True), ("diverged", True), ("crash", False)):
        assert expected(case(verdict), entry) is right
    assert judged(case("exact"), entry).known is None


@pytest.mark.parametrize(
    ("device", "there"), [("cpu (x86_64)", False), ("gpu (NVIDIA H200)", True)]
)
def test_a_defect_of_one_device_is_expected_there_alone(device, there):
    entry = defect(device="gpu (NVIDIA")
    assert expected(case("diverged", device=device), entry) == there
    assert expected(case("exact", device=device), entry) != there


def test_a_model_that_cannot_be_loaded_shows_no_other_defect():
    loading = defect(id="cannot-load", verdicts={"ragged": Verdict.CRASH})
    other = defect(verdicts={"ragged": Verdict.PROTOCOL})
    of_one = defect(verdicts={"ragged": Verdict.CRASH}, schedules={"ragged": ("two_rows",)})
    assert expected(case("crash"), loading, other, of_one)
    assert not expected(case("crash"), of_one)
    assert not expected(case("crash"), other)
    assert not expected(case("crash", two_rows="crash"), loading, other)


def test_of_a_list_any_one_is_expected_and_no_other():
    listed = defect(verdicts={"ragged": (Verdict.DRIFT, Verdict.DIVERGED)})
    assert those_expected(listed) == {Verdict.DRIFT, Verdict.DIVERGED}


@pytest.mark.parametrize("known", [True, False])
def test_refused_schedules_beside_bad_ones_need_an_entry_with_the_words(known):
    words = "metal_kernel" if known else "another"
    result = case("diverged", seed=1, two_rows="diverged", turbo="unsupported")
    said = Finding(Verdict.UNSUPPORTED, "failure", words)
    result = msgspec.structs.replace(result, evidence=(said,))
    asked = refusal(families=("plamo2",))
    assert expected(result, defect(), asked) == known


@pytest.mark.parametrize("verdict", ["exact", "drift", "unstable", "nan"])
def test_what_reads_stray_memory_may_get_any_number_or_none(verdict):
    listed = defect(verdicts={"ragged": (Verdict.NAN, Verdict.UNSTABLE)})
    assert expected(case(verdict, seed=1), listed)
    assert not expected(case("crash", seed=1), listed)


@pytest.mark.parametrize("verdict", [v for v in Verdict if v is not Verdict.DIVERGED])
def test_every_other_verdict_is_not_expected_a_pass_included(verdict):
    result = judged(case(verdict), defect())
    assert not result.expected
    assert result.known == "lost-state"
    assert result.evidence[-1].check == "expectations"
    assert result.evidence[-1].what == f"expectation lost-state: wants diverged, got {verdict}"


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"engine": "mlx_lm_batch_generate"},
        {"family": "llama"},
        {"scenario": "window"},
        {"dtype": "bfloat16"},
        {"version": "0.32.3"},
        {"version": "0.31.3"},
    ],
)
def test_an_entry_says_nothing_about_other_cases(elsewhere):
    result = judged(case("diverged", **elsewhere), defect())
    assert not result.expected
    assert result.known is None
    assert expected(case("exact", **elsewhere), defect())


def test_a_refused_case_is_asked_for_no_defect():
    refused = case("unsupported", family="bitnet", words="metal_kernel: no back-end")
    entry = defect(families=("*",))
    assert judged(refused, entry, refusal()).known == "metal-only"
    assert expected(refused, entry, refusal())
    assert not expected(refused, entry)
    assert not expected(case("crash", family="bitnet"), entry, refusal())


def test_families_can_be_excepted_by_globs():
    entry = defect(families=("*",), except_families=("bitnet", "llama4*"))
    assert expected(case("diverged"), entry)
    for family in ("bitnet", "llama4_text"):
        assert judged(case("diverged", family=family), entry).known is None


def test_a_prerelease_counts_as_a_release():
    assert expected(case("diverged", version="0.32.2rc1"), defect())


def test_an_entry_is_inactive_where_the_release_is_unknown():
    assert not expected(case("diverged"), defect(package="mlx-vlm"))


@pytest.mark.parametrize("lane", [{"seed": 1}, {"dtype": "bfloat16"}])
def test_numbers_may_flip_with_the_seed_and_in_noisy_dtypes(lane):
    entry = defect(may_show_in=("bfloat16", "float16"))
    assert those_expected(entry, **lane) == GOOD | NUMERIC


def test_a_scenario_of_other_seeds_must_be_right_with_seed_0_and_may_be_wrong_with_others():
    entry = defect(other_seeds=("window",))
    assert those_expected(entry, scenario="window") == GOOD
    assert those_expected(entry, scenario="window", seed=3) == GOOD | NUMERIC
    # Whatever fails is the entry's, so that it is played again with the defect mended.
    known = {v: judged(case(v, scenario="window", seed=3), entry).known for v in Verdict}
    assert known == {v: None if v in GOOD else "lost-state" for v in Verdict}


def test_a_new_defect_in_a_scenario_of_other_seeds_is_seen_behind_the_mend():
    entry = defect(other_seeds=("window",))
    for verdict, seen in ((Verdict.DIVERGED, False), (Verdict.TIE, True)):
        mended = MendedResult(verdict, ("lost-state",), ("window",), 0.1)
        result = msgspec.structs.replace(case(scenario="window", seed=3), mended=mended)
        assert expected(result, entry) == seen


@pytest.mark.parametrize(
    ("mended", "known"),
    [
        (None, None),
        (MendedResult(Verdict.EXACT, ("lost-state",), ("many",), 0.1), "lost-state"),
        (MendedResult(Verdict.EXACT, ("another",), ("many",), 0.1), None),
    ],
)
def test_a_workload_is_excused_by_a_mend_that_makes_it_right(mended, known):
    wrong = msgspec.structs.replace(case("crash", scenario="traffic"), mended=mended)
    found = judged(wrong, defect())
    assert (found.expected, found.known) == (known is not None, known)
    assert Expectations((defect(),)).to_mend(wrong)[0] == (defect(),)


def test_a_workload_that_is_wrong_with_all_mended_is_not_known():
    mended = MendedResult(Verdict.DIVERGED, ("lost-state",), ("many",), 0.1)
    found = judged(msgspec.structs.replace(case(scenario="traffic"), mended=mended), defect())
    assert not found.expected
    assert not any(finding.known for finding in found.evidence)


def test_a_defect_that_a_workload_must_show_may_hide_with_another_seed():
    entry = defect(verdicts={"traffic": Verdict.CRASH})
    assert those_expected(entry, scenario="traffic") == {Verdict.CRASH}
    assert those_expected(entry, scenario="traffic", seed=1) >= GOOD | {Verdict.CRASH}


def test_a_defect_of_other_seeds_alone_is_mended_in_every_workload():
    entry = defect(verdicts={}, other_seeds=("traffic",))
    for seed in (0, 1):
        wrong = case("protocol", scenario="traffic", seed=seed)
        assert Expectations((entry,)).to_mend(wrong)[0] == (entry,)
    assert not expected(case("protocol", scenario="ragged", seed=1), entry)


def test_an_entry_outside_of_workloads_excuses_none():
    mended = MendedResult(Verdict.EXACT, ("lost-state",), ("many",), 0.1)
    wrong = msgspec.structs.replace(case(scenario="traffic"), mended=mended)
    assert not expected(wrong, defect(in_workloads=False))
    assert Expectations((defect(in_workloads=False),)).to_mend(wrong)[0] == ()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"served": False},
        {"engines": ("mlx_lm_server",)},
        {"engines": ("mlx_lm_server*",), "families": ("llama",)},
        {"families": ("*",)},
    ],
)
def test_an_engine_s_entry_may_show_in_its_server_if_that_can_meet_it(changes):
    mended = MendedResult(Verdict.EXACT, ("lost-state",), ("many",), 0.1)
    entry = defect(**changes)
    wrong = case("protocol", engine="mlx_lm_server", scenario="served_media")
    assert Expectations((entry,)).to_mend(wrong)[0] == (() if changes else (entry,))
    assert not expected(wrong, entry)
    assert expected(msgspec.structs.replace(wrong, mended=mended), entry) is not bool(changes)
    assert expected(case("exact", engine="mlx_lm_server", scenario="served_media"), entry)


@pytest.mark.parametrize("verdict", [Verdict.EXACT, Verdict.VACUOUS])
def test_an_engine_s_entry_that_does_not_explain_its_server_makes_no_finding_known(verdict):
    mended = MendedResult(verdict, ("lost-state",), ("many",), 0.1)
    wrong = Finding(Verdict.DIVERGED, "free", "output token 0 is 1", schedule="many")
    result = msgspec.structs.replace(
        case("diverged", engine="mlx_lm_server", scenario="served_media"),
        mended=mended,
        evidence=(wrong, Finding(verdict, "mends", "no effect", mended="lost-state")),
    )
    first = Expectations((defect(),)).apply(result).evidence[0]
    assert bool(first.known) is verdict.good


@pytest.mark.parametrize(
    ("wanted", "engine", "fine"),
    [
        (Verdict.PROTOCOL, "mlx_lm_server", False),
        ((Verdict.DRIFT, Verdict.PROTOCOL), "mlx_lm_server", False),
        ((Verdict.DIVERGED, Verdict.PROTOCOL), "mlx_lm_server", True),
        (Verdict.PROTOCOL, "mlx_lm", True),
    ],
)
def test_what_a_server_says_wrongly_excuses_no_wrong_token(wanted, engine, fine):
    entry = defect(engines=(engine,), verdicts={"served_ends": wanted})
    said = Finding(Verdict.PROTOCOL, "claims", "a count", schedule="many")
    wrong = Finding(Verdict.DIVERGED, "free", "output token 0 is 1", schedule="many")
    result = case("protocol", engine=engine, scenario="served_ends")
    assert expected(msgspec.structs.replace(result, evidence=(said,)), entry)
    assert expected(msgspec.structs.replace(result, evidence=(said, wrong)), entry) is fine


def test_an_engine_s_entry_has_no_part_in_what_an_entry_of_the_server_explains():
    own = defect(
        "own", engines=("mlx_lm_server",), verdicts={"served_ends": Verdict.PROTOCOL}, families="*"
    )
    known = Expectations((own, defect()))
    explained = case("protocol", engine="mlx_lm_server", scenario="served_ends")
    assert known.to_mend(explained)[0] == (own,)
    worse = case("hang", engine="mlx_lm_server", scenario="served_ends")
    assert known.to_mend(worse)[0] == (own, defect())


def test_an_entry_whose_family_shows_workloads_alone_is_stale():
    entry = defect(families=("plamo2", "gone"))
    ran = [case(), case(scenario="traffic", family="gone")]
    assert any("'gone'" in text for text in Expectations((entry,)).stale(ran, whole=True))


def test_other_seeds_do_not_make_up_for_a_defect_that_is_gone_with_seed_0():
    entry = defect(other_seeds=("window",))
    assert expected(case("diverged", scenario="window", seed=3), entry)
    assert not expected(case("exact"), entry), "ragged must show it"


@pytest.mark.parametrize("lane", [{"seed": 1}, {"dtype": "bfloat16"}])
def test_what_is_not_about_numbers_does_not_flip(lane):
    entry = defect(may_show_in=("bfloat16", "float16"))
    assert those_expected(entry, scenario="invalid", **lane) == {Verdict.PROTOCOL}


def test_a_defect_of_the_oracle_may_hide_but_not_turn_into_another():
    entry = defect(verdicts={"repeat": Verdict.ORACLE})
    assert those_expected(entry, scenario="repeat", seed=1) == GOOD | {Verdict.ORACLE}


def test_a_hidden_defect_is_not_named_in_the_result():
    assert judged(case("exact", seed=1), defect()).known is None


def test_a_schedule_may_show_less_than_the_worst_one():
    assert expected(case("diverged", a="diverged", b="drift", c="exact"), defect())


def test_no_schedule_may_show_more_than_the_entry_says():
    entry = defect(verdicts={"ragged": Verdict.DRIFT})
    assert expected(case("drift", a="drift"), entry)
    assert not expected(case("diverged", a="drift", b="diverged"), entry)


def test_only_claimed_schedules_may_be_bad():
    entry = defect(schedules={"ragged": ("a", "b")})
    assert expected(case("diverged", a="diverged", b="drift", c="tie"), entry)
    result = judged(case("diverged", a="diverged", c="drift"), entry)
    assert not result.expected
    assert "does not cover schedule 'c', which is drift" in result.evidence[-1].what
    assert judged(result, entry).evidence == result.evidence, "a rule is said once"


def test_a_claimed_schedule_must_show_the_verdict():
    entry = defect(schedules={"ragged": ("a",)})
    result = judged(case("diverged", a="exact", c="diverged"), entry)
    assert not result.expected
    assert "wants diverged in a, got exact" in result.evidence[-1].what


def test_a_case_that_failed_before_its_schedules_does_not_show_a_listed_one():
    assert not expected(case("diverged"), defect(schedules={"ragged": ("a",)}))


def test_claimed_schedules_bind_other_seeds_too():
    entry = defect(schedules={"ragged": ("a",)})
    assert expected(case("drift", seed=1, a="drift", c="exact"), entry)
    assert not expected(case("drift", seed=1, c="drift"), entry)


def two():
    crash = defect("first", verdicts={"ragged": Verdict.CRASH}, schedules={"ragged": ("a",)})
    drift = defect("second", verdicts={"ragged": Verdict.DRIFT}, schedules={"ragged": ("b",)})
    return crash, drift


def test_two_defects_of_one_case_must_both_show():
    result = judged(case("crash", a="crash", b="drift"), *two())
    assert result.expected
    assert result.known == "first, second"
    assert not expected(case("crash", a="crash", b="exact"), *two())
    assert not expected(case("drift", a="exact", b="drift"), *two())


def test_of_two_defects_each_answers_for_its_own_schedules():
    assert not expected(case("crash", a="crash", b="crash"), *two())
    assert not expected(case("crash", a="crash", b="drift", c="drift"), *two())


def test_unsupported_needs_an_entry_with_the_words():
    words = "raised RuntimeError: [metal_kernel] No Metal back-end."
    result = judged(case("unsupported", family="bitnet", words=words), refusal())
    assert result.expected
    assert result.known == "metal-only"
    assert not expected(case("unsupported", family="bitnet", words=words))
    assert not expected(case("unsupported", family="bitnet", words="no such file"), refusal())
    assert not expected(case("unsupported", family="bitnet"), refusal())


@pytest.mark.parametrize(
    "elsewhere", [{"family": "llama"}, {"engine": "other"}, {"device": "gpu (Apple M4)"}]
)
def test_words_do_not_excuse_other_cases(elsewhere):
    found = {"family": "bitnet", "words": "metal_kernel"} | elsewhere
    assert not expected(case("unsupported", **found), refusal())


@pytest.mark.parametrize("narrow", [{"dtypes": ("float16",)}, {"scenarios": ("window",)}])
def test_a_refusal_can_be_narrowed(narrow):
    result = case("unsupported", family="bitnet", words="metal_kernel")
    assert expected(result, refusal())
    assert not expected(result, refusal(**narrow))


def test_a_schedule_beside_a_defect_may_be_refused():
    entry = defect(families=("bitnet",), schedules={"ragged": ("a",)})
    mixed = case(family="bitnet", words="metal_kernel", a="diverged", b="unsupported")
    assert expected(mixed, entry, refusal())
    assert not expected(mixed, entry)
    crashed = case("crash", family="bitnet", words="metal_kernel", a="diverged", b="crash")
    assert not expected(crashed, entry, refusal())


def test_a_refusal_excuses_no_other_verdict():
    assert not expected(case("crash", family="bitnet", words="metal_kernel"), refusal())


RAN = (
    case("diverged", a="diverged"),
    case("protocol", scenario="invalid", a="protocol"),
    case("unsupported", family="bitnet", words="metal_kernel"),
    case("exact", scenario="threads", family="llama"),
)


def stale(entry, results=RAN, *, whole=True):
    is_defect = isinstance(entry, Defect)
    entries = Expectations((entry,) if is_defect else (), () if is_defect else (entry,))
    return entries.stale(results, whole=whole)


def test_a_scenario_that_the_engines_cannot_express_is_not_missed():
    assert stale(defect(verdicts={"ragged": Verdict.DIVERGED, "staggered": Verdict.DRIFT})) == ()


def test_an_entry_for_schedules_that_a_case_does_not_play_says_nothing_of_it():
    entry = defect(schedules={"ragged": ("bounded",)})
    assert expected(case("exact", whole="exact"), entry)
    assert not expected(case("diverged", whole="diverged"), entry)


@pytest.mark.parametrize("entry", [defect(schedules={"ragged": ("a",)}), refusal()])
def test_an_entry_that_is_met_is_not_stale(entry):
    assert stale(entry) == ()


@pytest.mark.parametrize(
    ("entry", "part"),
    [
        (defect(families=("plamo*", "plamo9")), "family 'plamo9' matches no case"),
        (
            defect(verdicts={"ragged": Verdict.DIVERGED, "threads": Verdict.DRIFT}),
            "scenario 'threads' matches no case",
        ),
        (
            defect(schedules={"ragged": ("a", "typo")}),
            "schedule 'typo' of 'ragged' matches no case",
        ),
        (refusal(families=("bitnet", "llama")), "no case of family 'llama' was refused"),
        (refusal(text="other words"), "no case of family 'bitnet' was refused"),
    ],
)
def test_each_part_that_met_no_case_is_reported_in_one_sentence(entry, part):
    (sentence,) = stale(entry)
    assert repr(entry.id) in sentence
    assert part in sentence
    assert stale(entry, whole=False) == ()


@pytest.mark.parametrize(
    "entry",
    [
        defect(engines=("other",), families=("typo",)),
        defect(dtypes=("float16",), families=("typo",)),
        defect(versions="<0.32", families=("typo",)),
        refusal(engines=("other",), families=("typo",)),
        refusal(dtypes=("float16",), families=("typo",)),
        refusal(device="gpu", families=("typo",)),
        defect(device="gpu", families=("typo",)),
    ],
)
def test_what_the_run_could_not_meet_is_not_missed(entry):
    assert stale(entry) == ()


def test_a_defect_is_not_asked_for_where_all_that_it_claims_is_refused():
    hangs = defect("hangs", families=("bitnet",), verdicts={"ragged": Verdict.HANG})
    hangs = msgspec.structs.replace(hangs, schedules={"ragged": ("one",)})
    other = defect("other", families=("bitnet",), verdicts={"ragged": Verdict.CRASH})
    other = msgspec.structs.replace(other, schedules={"ragged": ("two", "three")})
    words = {"family": "bitnet", "words": "metal_kernel: no back-end"}
    refused = case("hang", **words, one="hang", two="unsupported", three="unsupported")
    assert expected(refused, hangs, other, refusal())
    assert judged(refused, hangs, other, refusal()).known == "hangs"
    assert not expected(refused, hangs, other)  # no entry says that it may be refused
    played = case("hang", **words, one="hang", two="unsupported", three="exact")
    assert not expected(played, hangs, other, refusal())


def lacks(**changes):
    message = "ImportError: libGL.so.1: cannot open shared object file: No such file or directory"
    found = Finding(Verdict.UNSUPPORTED, "failure", "raised", got=message)
    return msgspec.structs.replace(case("unsupported", **changes), evidence=(found,))


def test_what_this_machine_lacks_a_library_for_needs_no_entry():
    assert expected(lacks())
    assert expected(lacks(), defect()), "a case that is not played shows no defect"
    assert judged(lacks(), defect()).known is None


def test_a_family_that_is_not_playable_here_makes_no_refusal_stale():
    entries = Expectations((), (refusal(),))
    played = [case("exact", family="bitnet")]
    assert entries.stale(played, whole=True)
    assert entries.stale([lacks(family="bitnet")], whole=True) == ()


ARRAYS = ("cache:ArraysCache", "rope:none")


def of_new(verdict, **changes):
    """A case of a family that no entry names, with a cache of a kind that one does."""
    fields = {"family": "newcomer", **changes}
    return msgspec.structs.replace(case(verdict, **fields), traits=ARRAYS)


def by_trait(**changes):
    return defect(**{"traits": ("cache:ArraysCache",), **changes})


def test_another_family_with_the_trait_may_show_the_defect():
    assert judged(of_new("diverged"), by_trait()).known == "lost-state"
    assert not expected(of_new("diverged"), defect()), "without the trait it is new"
    assert not expected(of_new("diverged"), by_trait(traits=("cache:KVCache",)))
    assert not expected(case("diverged", family="newcomer"), by_trait()), "it has not the trait"


def test_a_family_with_the_trait_may_be_right():
    assert expected(of_new("exact"), by_trait())
    assert judged(of_new("exact"), by_trait()).known is None
    assert not expected(case("exact"), by_trait()), "where a family is named it must show"


def test_a_trait_excuses_no_other_verdict_scenario_or_schedule():
    assert expected(of_new("drift"), by_trait()), "other weights: another number"
    assert not expected(of_new("crash"), by_trait())
    assert not expected(of_new("diverged", scenario="threads"), by_trait())
    narrow = by_trait(schedules={"ragged": ("a",)})
    assert expected(of_new("diverged", a="diverged"), narrow)
    assert not expected(of_new("diverged", a="exact", b="diverged"), narrow)


def test_a_family_with_the_trait_can_be_excepted():
    assert not expected(of_new("diverged"), by_trait(except_families=("new*",)))


def test_traits_that_belong_together_are_all_wanted():
    both = by_trait(traits=("cache:ArraysCache & drafter:*",))
    assert not expected(of_new("diverged"), both)
    drafting = msgspec.structs.replace(of_new("diverged"), traits=(*ARRAYS, "drafter:mtp"))
    assert expected(drafting, both)
    results = [case("diverged"), of_new("exact")]
    (sentence,) = stale(both, results)
    assert "trait 'cache:ArraysCache & drafter:*' matches no case" in sentence


def test_a_trait_keeps_no_entry_from_being_stale():
    results = (*RAN, of_new("diverged"))
    assert stale(by_trait(), results) == ()
    assert stale(by_trait(families=("plamo*", "plamo9")), results)
    (sentence,) = stale(by_trait(traits=("cache:ArrayCache",)), results)
    assert "trait 'cache:ArrayCache' matches no case" in sentence
    assert stale(by_trait(traits=("cache:ArrayCache",))) == (), "no result has traits"


def unreleased(verdict):
    return case(verdict, version="0.33.0.dev0")


def test_what_is_unchanged_in_another_version_may_show_and_may_be_fixed():
    entry = defect(unchanged_in="0.33.0.dev0")
    assert judged(unreleased("diverged"), entry).known == "lost-state"
    assert expected(unreleased("exact"), entry)
    assert not expected(unreleased("crash"), entry)
    assert not expected(unreleased("diverged"), defect())
    assert stale(msgspec.structs.replace(entry, families=("typo",)), [unreleased("exact")]) == ()


def test_what_changed_in_a_checkout_is_not_known_there():
    entry = defect(changed_in="0.32.2 /x@abc")
    versions = {"mlx-lm": "0.32.2", "mlx-lm source": "/x@abc"}
    checkout = msgspec.structs.replace(case("diverged"), versions=versions)
    assert not expected(checkout, entry)
    assert expected(case("diverged"), entry)
    (said,) = (f.what for f in judged(checkout, entry).evidence if f.check == CHECK)
    assert said == f"known as lost-state, its function changed here: {entry.where}"
    other = msgspec.structs.replace(checkout, verdict=Verdict.LEAK, schedules=())
    assert judged(other, entry).evidence == other.evidence, "the defect never looks like that"
    assert judged(case("diverged"), entry).evidence == case("diverged").evidence


@pytest.mark.parametrize(("verdict", "good"), [("exact", True), ("tie", True), ("drift", False)])
def test_a_case_that_is_wrong_with_its_defects_mended_is_not_expected(verdict, good):
    mended = MendedResult(Verdict(verdict), ("lost-state",), ("one",))
    found = judged(msgspec.structs.replace(case(one="diverged"), mended=mended), defect())
    assert found.expected is good
    assert found.known == "lost-state"
    said = [f.what for f in found.evidence if "with that mended the case is" in f.what]
    assert len(said) == (not good)


@pytest.mark.parametrize(
    ("others", "good"), [((), True), (("drift",), False)], ids=["alone", "beside_drift"]
)
def test_what_is_refused_behind_a_defect_is_no_new_one(others, good):
    refused = Finding(Verdict.UNSUPPORTED, "failure", "no metal_kernel", mended="lost-state")
    more = [Finding(Verdict(v), "free", "off", mended="lost-state") for v in others]
    result = msgspec.structs.replace(
        case(one="diverged"),
        evidence=(refused, *more),
        mended=MendedResult(Verdict.UNSUPPORTED, ("lost-state",), ("one",)),
    )
    assert expected(result, defect(), refusal(families=("plamo2",))) is good
    assert not expected(result, defect(), refusal(families=("plamo2",), text="other"))


def test_the_entries_that_a_case_shows():
    entries = (defect(), defect("other", verdicts={"wide": Verdict.CRASH}))
    shown = Expectations(entries).shown_in
    assert [entry.id for entry in shown(case())] == ["lost-state"]
    assert [entry.id for entry in shown(case("exact"))] == ["lost-state"], "it should show"
    assert shown(case("exact", seed=1)) == ()
    assert shown(case(family="llama")) == ()


@pytest.mark.parametrize(
    ("place", "changes", "ends"),
    [
        ("mlx_lm/plamo2/ragged/float32/0", {}, True),
        ("mlx_lm/plamo2/ragged/float32/7", {}, True),
        ("mlx_lm/plamo2/ragged/float32/0", {"ends_process": False}, False),
        ("mlx_lm/plamo2/ragged/float32/0", {"versions": "<0.32"}, False),
        ("mlx_lm/plamo2/ragged/float32/0", {"except_families": ("plamo2",)}, False),
        ("mlx_lm/plamo2/ragged/float32/0", {"device": "gpu (NVIDIA"}, False),
        ("mlx_lm/plamo2/wide/float32/0", {}, False),
        ("mlx_lm/llama/ragged/float32/0", {}, False),
        ("mlx_vlm/plamo2/ragged/float32/0", {}, False),
        ("mlx_lm/plamo2/ragged/bfloat16/0", {}, False),
        ("mlx_lm/plamo2/ragged/bfloat16/0", {"may_show_in": ("bfloat16",)}, True),
    ],
)
def test_which_cases_end_their_process_is_known_before(place, changes, ends):
    entry = defect(**{"ends_process": True, **changes})
    assert entry.ends(CaseId.parse(place), {"mlx-lm": "0.32.2"}, "cpu (x86_64)") is ends


@pytest.mark.parametrize(
    ("family", "module", "verdict", "known"),
    [
        ("mine", "plamo2", "diverged", "lost-state"),
        ("mine", "qwen3", "diverged", None),
        ("mine", "plamo2", "exact", None),  # that it does not show there is no failure
        ("plamo2", "plamo2", "diverged", "lost-state"),
    ],
)
def test_what_is_known_of_a_module_is_known_of_another_family_of_it(family, module, verdict, known):
    found = Expectations((defect(),)).apply_like(case(verdict, family=family), module=module)
    assert (found.known, found.family) == (known, family)
    assert found.expected == (known is not None or verdict == "exact")


# Findings: which are known, and which are new ------------------------------------------------

LATE = defect(schedules={"ragged": ("late",)})
REFUSALS = [refusal(families=("plamo2",))]


def known(*findings, entries=(), refusals=()):
    """What of it the entries allow: the ids, in the order of the findings."""
    order = sorted(findings, key=lambda f: -f.verdict.severity)
    names = dict.fromkeys(f.schedule for f in findings if f.schedule)
    worst = {n: next(f.verdict for f in order if f.schedule == n) for n in names}
    schedules = tuple(ScheduleResult(name, verdict) for name, verdict in worst.items())
    verdict = order[0].verdict
    result = make_result(
        "mlx_lm/plamo2/ragged/float32/0", verdict, evidence=findings, schedules=schedules
    )
    judged = Expectations(tuple(entries), tuple(refusals)).apply(result)
    return [finding.known for finding in judged.evidence if finding.check != "expectations"]


def at(schedule, verdict=Verdict.DIVERGED, **changes):
    return make_finding(verdict, schedule=schedule, **changes)


def test_what_the_entry_claims_is_known_and_another_schedule_is_new():
    assert known(at("late"), at("early"), entries=[LATE]) == ["lost-state", ""]


@pytest.mark.parametrize(
    ("verdict", "allowed"),
    [(Verdict.DRIFT, True), (Verdict.DIVERGED, True), (Verdict.NAN, False), (Verdict.CRASH, False)],
)
def test_what_is_worse_than_the_entry_wants_is_new(verdict, allowed):
    found = known(at("late"), at("late", verdict), entries=[LATE])
    assert found == ["lost-state", "lost-state" if allowed else ""]


def test_without_an_entry_for_the_case_all_is_new():
    assert known(at("late"), entries=[msgspec.structs.replace(LATE, families=("llama",))]) == [""]


def test_each_entry_that_allows_it_is_named():
    entries = [LATE, defect("other")]
    assert known(at("late"), at("early"), entries=entries) == ["lost-state, other", "other"]


def test_what_is_in_no_schedule_is_judged_by_its_verdict():
    found = known(at("", Verdict.VACUOUS), at("late"), at("", Verdict.CRASH), entries=[LATE])
    assert found == ["lost-state", "lost-state", ""]


def test_a_declared_refusal_is_known_also_beside_something_new():
    refused = at("late", Verdict.UNSUPPORTED, got="no metal_kernel here")
    assert known(refused, refusals=REFUSALS) == ["metal-only"]
    assert known(refused, at("early"), refusals=REFUSALS) == [
        "metal-only",
        "",
    ]
    other = at("late", Verdict.UNSUPPORTED, got="no sinks")
    assert known(refused, other, refusals=REFUSALS) == ["metal-only", ""]


def test_a_tie_is_never_a_defect():
    assert known(at("late"), at("late", Verdict.TIE), entries=[LATE]) == ["lost-state", ""]


def test_what_is_found_with_the_defects_mended_is_new():
    assert known(at("late"), at("late", mended="lost-state"), entries=[LATE]) == [
        "lost-state",
        "",
    ]
