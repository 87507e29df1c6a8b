"""Each kind of wrong in a foreign trace gets its verdict, and what is right gets none."""

import pytest

from conformance.core.errors import VectorsError
from conformance.core.verdict import Verdict
from conformance.tools.vectors.judging import judge_trace, result_text


@pytest.fixture
def judged(write_trace, vectors):
    """The one result of these runs."""

    def judge(*runs):
        (result,) = judge_trace(write_trace(*runs), vectors).results
        return result

    return judge


def forced(run):
    return [{**one, "forced": True} if one["record"] == "token" else one for one in run]


def without_top(run):
    return [{k: v for k, v in one.items() if k != "top"} for one in run]


@pytest.mark.parametrize("change", [list, forced, without_top])
@pytest.mark.parametrize("name", ["plain", "moving"])
def test_what_is_right_is_exact(judged, request, name, change):
    result = judged(change(request.getfixturevalue(name)))
    assert result.verdict is Verdict.EXACT, result.evidence
    assert result.expected
    assert result.case == "other/toy/ragged/float32/0"


def test_runs_of_one_scenario_are_one_case(judged, plain, moving):
    result = judged(plain, forced(plain), moving)
    assert [one.name for one in result.schedules] == ["plain", "moving"]


def test_what_is_wrong_has_a_picture(judged, plain):
    assert judged(plain).picture is None
    plain[1] = shifted(plain[1], 1.0)
    picture = judged(plain).picture
    assert picture.schedule == "plain"
    assert picture.compared.bad == 0
    assert len(picture.lanes) == picture.rows


def test_what_was_not_played_is_named(write_trace, vectors, plain):
    assert judge_trace(write_trace(plain), vectors).unplayed == ("toy/ragged/moving",)


def shifted(line, by):
    return {**line, "top": [[token, value + by] for token, value in line["top"]]}


def test_rounding_is_exact(judged, plain):
    plain[1] = shifted(plain[1], 2e-5)
    result = judged(plain)
    assert result.verdict is Verdict.EXACT
    assert result.ratio == pytest.approx(2, rel=0.05)


def test_other_numbers_drift(judged, plain):
    plain[3] = shifted(plain[3], 0.01)
    result = judged(plain)
    (finding,) = result.evidence
    assert (finding.verdict, finding.check) == (Verdict.DRIFT, "forced")
    assert (finding.request_id, finding.step, finding.row) == ("a", 1, 0)
    assert result.first_bad_step == 1


def test_a_token_that_is_missing_at_the_top_drifts(judged, plain):
    plain[1]["top"] = [[5, -0.5], [7, -2.5]]
    assert judged(plain).verdict is Verdict.DRIFT


def test_another_token_diverges(judged, plain):
    plain[6]["token"] = 3
    (finding,) = judged(plain).evidence
    assert (finding.verdict, finding.check) == (Verdict.DIVERGED, "free")
    assert finding.expected == "token 10"
    assert finding.margin == pytest.approx(1.0)


def test_another_token_diverges_without_numbers_too(judged, plain):
    plain[6]["token"] = 3
    assert judged(without_top(plain)).verdict is Verdict.DIVERGED


def test_a_tie_is_none_and_nothing_is_compared_after_it(judged, plain):
    # The margin there is one noise, and 7 is the likeliest by what comes with it.
    names = [7 if token == 6 else 6 if token == 7 else token for token, _ in plain[3]["top"]]
    tops = zip(names, (logprob for _, logprob in plain[3]["top"]), strict=True)
    plain[3] |= {"token": 7, "top": [list(pair) for pair in tops]}
    plain[5] |= {"token": 1, "top": [[1, -0.1], [2, -8.0]]}
    result = judged(plain)
    assert result.verdict is Verdict.TIE, result.evidence
    assert result.expected


def test_a_tie_with_other_numbers_is_none(judged, plain):
    plain[3] = {**shifted(plain[3], 0.01), "token": 7}
    assert judged(plain).verdict is Verdict.DIVERGED


@pytest.mark.parametrize("index", [1, 6])
def test_a_null_is_nan(judged, plain, index):
    plain[index]["top"][0][1] = None
    result = judged(plain)
    assert result.verdict is Verdict.NAN
    assert result.evidence[0].check == "nonfinite"


def test_nan_beside_the_goldens_tokens_is_nan(judged, plain):
    plain[1]["top"].append([15, None])
    assert judged(plain).verdict is Verdict.NAN


def protocol(result):
    assert result.verdict is Verdict.PROTOCOL
    found = [finding.what for finding in result.evidence if finding.check == "protocol"]
    return [what.partition(":")[0] for what in found]


def without(*indices):
    return lambda run: [line for index, line in enumerate(run) if index not in indices]


def inserted(at, **change):
    return lambda run: [*run[:at], {**run[5], **change}, *run[at:]]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without(5), ["wrong number of tokens"]),
        (inserted(7, step=3), ["wrong number of tokens"]),
        (without(7), ["wrong finish reason"]),
        (lambda run: [*run[:7], {**run[7], "reason": "stop"}, *run[8:]], ["wrong finish reason"]),
        (lambda run: [run[0], run[-1]], ["wrong finish reason"] * 2),
        (inserted(1, request_id="z", step=0), ["a token for z in step 0"]),
        (lambda run: [*run[:4], *without_top(run[4:5]), *run[5:]], ["events without logprobs"]),
        (
            lambda run: forced([*run[:3], {**run[3], "token": 1}, *run[4:]]),
            ["tokens other than fed"],
        ),
    ],
)
def test_a_run_against_the_protocol(judged, plain, change, said):
    assert protocol(judged(change(plain))) == said


def test_a_token_after_the_end(judged, plain):
    plain.insert(-1, {**plain[5], "step": 3})
    assert "a token after its finish, in step 6" in protocol(judged(plain))


def test_a_token_after_the_removal(judged, moving):
    moving.insert(5, {**moving[2], "step": 1, "token": 9})
    assert "a token after its removal, in step 3" in protocol(judged(moving))


@pytest.mark.parametrize(
    ("unsupported", "verdict"), [(False, Verdict.CRASH), (True, Verdict.UNSUPPORTED)]
)
def test_an_error(judged, plain, unsupported, verdict):
    error = {"record": "error", "type": "E", "message": "no", "unsupported": unsupported}
    result = judged([*plain[:3], error])
    assert result.verdict is verdict
    assert not result.expected


def test_bytes_that_are_held_in_the_end(judged, moving):
    moving[-1]["cache_bytes"] = 64
    assert judged(moving).verdict is Verdict.LEAK


def test_what_never_happened_proves_nothing(judged, moving):
    del moving[3]
    result = judged(moving)
    assert result.verdict is Verdict.VACUOUS
    assert result.evidence[0].what.startswith("never happened: removal of b")


def test_the_message_has_five_parts(judged, plain):
    plain[6]["token"] = 3
    text = result_text(judged(plain), rerun="conformance golden judge t --vectors v")
    heads = [line.split(":")[0].strip() for line in text.splitlines()]
    assert heads == ["diverged", "what", "where", "expected", "cause", "rerun"]
    assert "schedule 'plain', free run, request 'b', step 2, row 1" in text
    assert "what this rung adds: prompts of unequal length: padding" in text
    assert "conformance golden judge t --vectors v" in text


def test_a_good_result_is_one_line(judged, plain):
    assert result_text(judged(plain), rerun="") == (
        "exact: other/toy/ragged/float32/0 (schedules: plain, at most 0 times the noise)"
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dtype": "float16"}, r"line 1: field 'dtype' is 'float16', the vectors are of float32"),
        ({"family": "toi"}, r"line 1: .* has no family 'toi'; it has toy$"),
        ({"scenario": "raged"}, r"line 1: .* has no scenario of toy 'raged'; it has ragged$"),
        ({"schedule": "x"}, r"line 1: .* no schedule of toy/ragged 'x'; it has plain, moving$"),
    ],
)
def test_a_trace_of_other_vectors(judged, plain, change, words):
    plain[0] |= change
    with pytest.raises(VectorsError, match=words):
        judged(plain)


def test_a_token_beyond_the_vocabulary(judged, plain):
    plain[1]["top"][3][0] = 16
    with pytest.raises(VectorsError, match="line 2: field 'top' has token 16, the vocabulary has"):
        judged(plain)
