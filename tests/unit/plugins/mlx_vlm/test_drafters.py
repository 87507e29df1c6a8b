"""Drafters: loading, drafts that are right at will, and faults that the scenario must see."""

import pkgutil
import re
from pathlib import Path

import mlx.core as mx
import pytest
from miniatures.vision import FAMILIES, findings, load_subject
from mlx_vlm.speculative import common, dflash, drafters

from conformance.core.engine_options import Drafting
from conformance.core.family import load_family
from conformance.core.faults.declaration import Hits
from conformance.core.rounds import Hints
from conformance.core.verdict import Verdict
from conformance.plugins.mlx_vlm.drafters import DraftEditor, drafter_of
from conformance.plugins.mlx_vlm.mends.generation import what_is_not_computed_is_not_said
from conformance.scenarios.speculative import SPECULATIVE

WRONG = 99


class Drafter:
    """Drafts zeros."""

    def __init__(self):
        self.accept_lens = []

    def draft_block(self, last, hidden, cache, size, sampler, dtype=mx.int32):
        del hidden, cache, sampler
        rows = 1 if isinstance(last, int) else last.shape[0]
        return mx.zeros((rows, size - 1), dtype)


@pytest.fixture(scope="module")
def lfm2():
    return load_subject("lfm2")


@pytest.fixture
def mended():
    """Drafted tokens are not said to be certain."""
    with what_is_not_computed_is_not_said.repair(Hits()):
        yield


def drafts(editor, drafter, produced, last, rounds=1):
    """What is drafted for rows that gave ``produced`` and end with ``last``."""
    found = []
    for _ in range(rounds):
        editor.begin_step(list(produced))
        found.append(drafter.draft_block(mx.array(last), None, None, 4, None).tolist())
    return found if rounds > 1 else found[0]


def guided(right, **hints):
    drafter = Drafter()
    editor = DraftEditor(drafter, Drafting("dflash", 4, right))
    for name, tokens in hints.items():
        editor.add(name, Hints(tokens, (WRONG,) * len(tokens)))
        editor.record(name, tokens[0])
    return editor, drafter


def test_each_row_has_its_own_number_of_right_tokens_in_each_round():
    editor, drafter = guided((3, 0), a=(10, 11, 12, 13, 14), b=(20, 21, 22, 23, 24))
    first, second = drafts(editor, drafter, ("a", "b"), (10, 20), rounds=2)
    assert first == [[11, 12, 13], [WRONG, 22, 23]], "b's first is wrong, and the others are right"
    assert second == [[WRONG, 12, 13], [21, 22, 23]]
    assert editor.drafted == {"a": 3, "b": 3}


def test_a_row_is_known_by_its_last_token_and_a_row_that_has_ended_by_none():
    editor, drafter = guided((3,), a=(10, 11, 12, 13), b=(20, 21, 22, 23))
    assert drafts(editor, drafter, ("a", "b"), (99, 20)) == [[0, 0, 0], [21, 22, 23]]
    assert editor.drafted == {"b": 3}


def test_rows_may_be_drafted_for_one_after_the_other():
    editor, drafter = guided((3,), a=(10, 11, 12, 13), b=(20, 21, 22, 23))
    editor.begin_step(["a", "b"])
    assert drafter.draft_block(10, None, None, 4, None).tolist() == [[11, 12, 13]]
    assert drafter.draft_block(20, None, None, 4, None).tolist() == [[21, 22, 23]]


def test_past_the_last_token_that_is_known_the_draft_is_the_drafters_own():
    editor, drafter = guided((3,), a=(10, 11))
    assert drafts(editor, drafter, ("a",), (10,)) == [[11, 0, 0]]


def test_what_the_drafter_proposed_is_recorded_before_it_is_replaced():
    editor, drafter = guided((3,), a=(10, 11, 12, 13), b=(20, 21, 22, 23))
    drafts(editor, drafter, ("a", "b"), (10, 20))
    assert editor.proposed() == {"a": (0, 0, 0), "b": (0, 0, 0)}


@pytest.mark.parametrize(("last", "known"), [((99, 10, 20), True), ((10, 10, 20), False)])
def test_where_a_row_that_left_ends_like_another_it_is_unknown_whose_draft_is_whose(last, known):
    editor, drafter = guided((3,), a=(10, 11, 12, 13), b=(20, 21, 22, 23))
    drafts(editor, drafter, ("a", "b"), last)
    assert set(editor.proposed()) == ({"a", "b"} if known else set())


def test_without_a_plan_drafts_are_only_counted():
    editor, drafter = guided((), a=(10, 11, 12, 13))
    assert drafts(editor, drafter, ("a",), (10,)) == [[0, 0, 0]]
    assert editor.drafted == {"a": 3}


def after_a_round(editor, drafter, **more):
    """What is claimed of rows a and b when they are drafted for again, or ended."""
    drafts(editor, drafter, ("a", "b"), (10, 20))
    assert editor.claims() == ()
    for name, tokens in more.items():
        for token in tokens:
            editor.record(name, token)
    going = [name for name, tokens in more.items() if tokens]
    drafts(editor, drafter, going, [more[name][-1] for name in going])
    return [(claim.said, claim.found, claim.holds) for claim in editor.claims()]


@pytest.mark.parametrize(
    ("a", "claimed"),
    [
        ((11, 12, 13, 14), [("4, 1", "4, 1", True)]),
        ((11, 12), [("2, 1", "4, 1", False)]),
        ((11, 99), []),  # another text: it is unknown what was right
        ((), [("1", "1", True)]),
    ],
)
def test_right_tokens_that_were_not_accepted_are_claimed(a, claimed):
    hints = {"a": (10, 11, 12, 13, 14, 15), "b": (20, 21, 22, 23, 24)}
    editor, drafter = guided((3, 0), **hints)
    assert after_a_round(editor, drafter, a=a, b=(21,)) == claimed


@pytest.mark.parametrize(
    ("accepted", "holds"),
    [
        ((3, 0), [True, True]),
        ((3, 3), [True, False]),
        ((), [False, False]),  # it no longer counts
        ((3, 0, 3, 0), [False, True]),
    ],
)
def test_accepted_tokens_are_counted_as_they_are(accepted, holds):
    editor, drafter = guided((3, 0), a=(10, 11, 12, 13, 14, 15), b=(20, 21, 22, 23, 24))
    common._record_speculative_round(drafter, 3.0, 3)
    editor._counted = editor._counts()
    drafts(editor, drafter, ("a", "b"), (10, 20))
    for count in accepted:
        common._record_speculative_round(drafter, count, 3)
    for name, tokens in {"a": (11, 12, 13, 14), "b": (21,)}.items():
        for token in tokens:
            editor.record(name, token)
    drafts(editor, drafter, ("a", "b"), (14, 21))
    assert [claim.holds for claim in editor.claims()] == [True, *holds]


def test_a_drafter_is_loaded_once_and_put_back_each_time(lfm2):
    drafter = drafter_of(lfm2.model, "dflash")
    DraftEditor(drafter.model, Drafting("dflash"))
    assert "draft_block" in vars(drafter.model)
    again = drafter_of(lfm2.model, "dflash")
    assert again is drafter
    assert "draft_block" not in vars(drafter.model)


def drop_bonus(monkeypatch):
    """The token that the model gives after the accepted ones never comes out."""
    real = dflash._speculative_walk_batch

    def walk(draft_tokens, target_tokens, budgets):
        accepted, new = real(draft_tokens, target_tokens, budgets)
        return accepted, [row[:-1] if len(row) > 1 else row for row in new]

    monkeypatch.setattr(dflash, "_speculative_walk_batch", walk)


def accept_wrong_token(monkeypatch):
    """One token more than agrees is accepted."""
    real = dflash._speculative_walk_batch

    def walk(draft_tokens, target_tokens, budgets):
        accepted, _ = real(draft_tokens, target_tokens, budgets)
        count = draft_tokens.shape[1]
        accepted = [min(a + 1, count) for a in accepted]
        rows = zip(draft_tokens.tolist(), target_tokens.tolist(), accepted, budgets, strict=True)
        return accepted, [(d[:a] + t[a : a + 1])[:b] for d, t, a, b in rows]

    monkeypatch.setattr(dflash, "_speculative_walk_batch", walk)


def lose_whole_drafts(monkeypatch):
    """A row whose draft is right to its end counts as one without a right token."""
    real = dflash._speculative_walk_batch

    def walk(draft_tokens, target_tokens, budgets):
        accepted, new = real(draft_tokens, target_tokens, budgets)
        whole = [count == draft_tokens.shape[1] for count in accepted]
        pairs = zip(whole, accepted, new, strict=True)
        lost = [(0, tokens[:1]) if all_right else (n, tokens) for all_right, n, tokens in pairs]
        return [n for n, _ in lost], [tokens for _, tokens in lost]

    monkeypatch.setattr(dflash, "_speculative_walk_batch", walk)


@pytest.mark.usefixtures("mended")
def test_wasted_drafts_are_seen_though_all_tokens_are_right(lfm2, monkeypatch):
    assert all(f.verdict.good for f in findings(lfm2, SPECULATIVE, "dflash_all_right"))
    lose_whole_drafts(monkeypatch)
    found = findings(lfm2, SPECULATIVE, "dflash_all_right")
    assert {(f.check, f.verdict) for f in found} == {("claims", Verdict.PROTOCOL)}
    assert {f.what.partition(",")[0] for f in found} == {
        "tokens that the rows of a batch got of their drafts"
    }


@pytest.mark.parametrize("plant", [drop_bonus, accept_wrong_token])
@pytest.mark.usefixtures("mended")
def test_a_planted_fault_is_seen(lfm2, monkeypatch, plant):
    plant(monkeypatch)
    found = findings(lfm2, SPECULATIVE, "dflash_ragged")
    assert Verdict.DIVERGED in {f.verdict for f in found}


@pytest.mark.usefixtures("mended")
def test_where_drafts_are_the_drafters_own_that_fault_is_not_seen(lfm2, monkeypatch):
    """Hence the plan of right tokens: this drafter foresees nothing."""
    drop_bonus(monkeypatch)
    found = findings(lfm2, SPECULATIVE, "dflash_own_drafts")
    assert all(f.verdict.good for f in found)


# ----------------------------------------------------------------- the table in docs/drafters.md

TABLE = Path(__file__).parents[4] / "docs" / "drafters.md"


def rows():
    """Package, kind of rounds, families, reason."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "| `" in line]
    return {cells[0].strip("`"): cells[1:] for cells in cells}


def test_it_has_each_drafter_once():
    assert set(rows()) == {m.name for m in pkgutil.iter_modules(drafters.__path__) if m.ispkg}


def test_each_is_in_a_family_or_there_is_a_reason():
    assert all(("none" in family) == bool(why) for _, family, why in rows().values())


def test_it_has_the_families_that_have_drafters():
    said = {
        (name, kind)
        for kind, families, _ in rows().values()
        for name in re.findall("`(.*?)`", families)
    }
    made = {
        (path.stem, kind)
        for path in FAMILIES.glob("*.json")
        for kind in load_family(path).facts.drafters
    }
    assert said == made
