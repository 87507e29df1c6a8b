"""Which traits of a model shared code is chosen by, and which only faults are."""

from types import SimpleNamespace

from conformance.core.family import Facts, Family
from conformance.core.faults.traits import code_traits, traits
from conformance.core.library import Description

FOUND = Description(("ArraysCache",), "M-RoPE", ("recurrence",))
MORE = frozenset({"part:ssm.ssm_update"})


def subject(**facts):
    family = Family("newcomer", Facts(**facts), {"vocab_size": 8})
    library = SimpleNamespace(
        describe=lambda model: FOUND,
        head_sizes=lambda model: (64,),
        code_traits=lambda model: MORE,
    )
    return SimpleNamespace(family=family, library=library, model=None)


def test_code_goes_by_caches_positions_states_parts_and_modalities():
    facts = {"modalities": ("text", "audio"), "drafters": {"mtp": {}}, "uncut_media": "x.py:1"}
    facts["bidirectional_prompt"] = True
    assert code_traits(subject(**facts, window=8)) == {
        "cache:ArraysCache",
        "rope:M-RoPE",
        "state:recurrence",
        "part:ssm.ssm_update",
        "modality:text",
        "modality:audio",
        "drafter:mtp",
        "uncut:media",
        "uncut:prompt",
    }


def test_a_fault_may_also_need_others():
    more = traits(subject(window=8)) - code_traits(subject(window=8))
    assert {"window", "family:newcomer", "only:ArraysCache", "quantizable"} <= more
