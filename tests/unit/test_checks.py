"""Every check fails on planted bad input, for each finding that it can make.

And finds something that no other check does, or it would have to go.
"""

import ast
import dataclasses
import functools
import importlib
import inspect
import pkgutil
import sys

import msgspec
import numpy as np
import pytest
from miniatures.plays import NOISE, Script, spread_rows, stream

from conformance import checks
from conformance.checks import CHECKS
from conformance.checks.pool_rules import Rules
from conformance.core.counted import Counted, Pace
from conformance.core.engine_options import Drafting, EngineOptions, PrefixCaching
from conformance.core.numerics import flat_envelope
from conformance.core.phases import ForwardCall
from conformance.core.pooled import KeptSequence, PoolCall, Pooled, Prefix, StoreCall, Stored
from conformance.core.rounds import Round
from conformance.core.schedule import Arrival, Request, Schedule, Stage
from conformance.core.token_choice import OF_SERVER, RANDOM, Sampler
from conformance.core.trace import (
    Alive,
    CachedLayer,
    Claim,
    Failure,
    FinishReason,
    KeptCache,
    Mode,
    ProbeResult,
    TokenEvent,
)
from conformance.core.verdict import Verdict


def nothing(script): ...


def crash(script):
    script.free.failure = Failure("RuntimeError", "shapes", "mlx_lm/generate.py:9", "step 4")


def refusal(script):
    words = ("NotImplementedError", "not supported", "mlx_lm/generate.py:9", "step 4")
    script.free.failure = Failure(*words, unsupported=True)


def hang(script):
    script.forced.out_of_steps = True


def nan_when_forced(script):
    script.forced.move("a", 0, np.nan, token=2)
    script.repeat_forced().move("a", 0, np.nan, token=2)


def infinity_when_forced(script):
    script.forced.move("a", 0, np.inf, token=2)
    script.repeat_forced().move("a", 0, np.inf, token=2)


def all_masked_but_alike(script):
    """The oracle has it, too, so that no difference is left to see."""
    script.want["a"].logprobs[1] = -np.inf
    for take in (script.forced, script.free):
        take.move("a", 1, -np.inf)


def stranger(script):
    script.free.moments[2].events.append(TokenEvent("unknown uid 9", 3))


def lost_first_token(script):
    moment, place = script.forced.event("b", 0)
    del moment.events[place]


def late_token(script, name, token):
    logprobs = script.want[name].logprobs[2]
    moment = script.free.moments[6]
    moment.events.append(TokenEvent(name, token, logprobs, float(logprobs[token])))


def token_after_its_removal(script):
    late_token(script, "c", script.want["c"].tokens[2])


def token_after_its_finish(script):
    late_token(script, "b", 3)


def without_logprobs(script):
    for index in range(5):
        script.free.change("a", index, logprobs=None)


def finish_of_a_removed_request(script):
    script.free.change("c", 1, finish_reason=FinishReason.LENGTH)


def other_token_than_fed(script):
    script.forced.change("a", 1, token=(script.want["a"].tokens[1] + 1) % 8)


def other_token_than_fed_before_removal(script):
    script.forced.change("c", 1, token=(script.want["c"].tokens[1] + 1) % 8)


def stop_that_nobody_requested(script):
    script.free.change("b", 2, finish_reason=FinishReason.STOP)


def one_token_too_few(script):
    moment, place = script.free.event("b", 2)
    del moment.events[place]
    script.free.change("b", 1, finish_reason=FinishReason.LENGTH)


def small_drift(script):
    for take in (script.forced, script.free):
        take.move("b", 1, 1e-3)


def other_bits_in_half_precision(script):
    """Within the noise, but a batch of one computes what its single stream computes."""
    script.__init__(alone=True)
    script.dtype = "bfloat16"
    for take in (script.forced, script.free):
        take.move("a", 3, 0.5 * NOISE)


def a_little_cold_in_half_precision(script):
    """Each within the noise, and all of one sign."""
    script.__init__(rows=12)
    script.dtype = "float16"
    for take in (script.forced, script.free):
        for row in range(12):
            for step in range(5):
                take.move(f"r{row}", step, 0.5 * NOISE + 1e-8 * row)


def rows_spread_in_half_precision(script):
    """Logits are too large by less than what the noise explains."""
    script.__init__(rows=12)
    script.dtype = "bfloat16"
    spread_rows(script, range(12))
    noise = flat_envelope(5, 1.0)
    script.play = functools.partial(
        script.play, same_products=False, envelope=lambda _: noise, wider=lambda *_: [lambda: noise]
    )


def twins_apart(script):
    """By what rounding may move each of them against its single stream."""
    script.__init__(twins=True)
    for take in (script.forced, script.free):
        take.move("twin", 1, 2 * NOISE)


def other_token_on_equal_numbers(script):
    """As if the argmax were taken of another row."""
    script.free.change("b", 1, token=(script.want["b"].tokens[1] + 1) % 8)


def other_token_at_a_tie(script):
    script.__init__(margins={1: NOISE})
    runner_up = (script.want["b"].tokens[1] + 1) % 8
    script.free.change("b", 1, token=runner_up)
    script.free.move("b", 1, 2 * NOISE, token=runner_up)


def rubbish_in_the_repetition(script):
    script.repeat_forced().move("b", 1, 0.5)


def ghost_row(script):
    script.free.moments[6].forwards = [ForwardCall(1, 1)]


def buffers_kept(script):
    script.free.kept = KeptCache("a", counted=5000, held=50_000)


def growing_graph(script):
    script.__init__(alone=True)
    for index, moment in enumerate(script.free.moments):
        moment.pending = 10 * index


def seeds_alike(script):
    """Two seeds of equal requests, at which the server's answer alone is the same."""
    sampled = [Sampler(OF_SERVER, {"temperature": 0.8, "seed": seed}) for seed in (0, 2)]
    requests = [Request(f"r{at}", (1, 2), 8, own) for at, own in enumerate(sampled)]
    script.schedule = Schedule("by_hand", (Arrival(tuple(requests)),))
    script.want = dict.fromkeys(("r0", "r1"), stream(0, 8))
    script.forced, script.free = script._take(Mode.FORCED), script._take(Mode.FREE)


def unlikely_draws(script):
    """Tokens that are never drawn by these probabilities."""
    margins = dict.fromkeys(range(5), -20.0)
    script.__init__(sampler=Sampler(RANDOM, {"temp": 1.0}), margins=margins)


def draw_that_the_row_s_options_exclude(script):
    margins = dict.fromkeys(range(5), -20.0)
    script.__init__(sampler=Sampler(RANDOM, {"temp": 1.0, "top_k": 1}), margins=margins)


def positions_wasted(script):
    script.schedule = msgspec.structs.replace(script.schedule, contracts=("positions",))
    script.free.moments[0].forwards = [ForwardCall(3, 8)]


def bytes_held(script):
    script.forced.held = 512


def accepted(script):
    script.free.moments[2].probes = [ProbeResult("empty_prompt", None)]


def refused_unclearly(script):
    error = "IndexError: list index out of range"
    script.free.moments[2].probes = [ProbeResult("empty_prompt", error)]


def half_applied(script):
    result = ProbeResult("empty_prompt", "ValueError: empty prompt", ("queue: [] became ['a']",))
    script.free.moments[2].probes = [result]


def policy_that_raises(script):
    script.__init__(alone=True)
    script.policy = Failure("NotImplementedError", "NYI", "cache.py:796", "decoding")


def another_policy(script):
    """A batch of one that is right, and a single stream of the library's that is not the same."""
    script.__init__(alone=True)
    script.policy = script.want["a"].logprobs + np.float32(1e-3)


def draft_that_foresees_nothing(script):
    options = EngineOptions(drafting=Drafting("draft_model"))
    script.schedule = msgspec.structs.replace(script.schedule, options=options)
    script.free.moments[2].drafted = {"a": 3}


def draft_of_another_row(script):
    options = EngineOptions(drafting=Drafting("draft_model", compared=True))
    script.schedule = msgspec.structs.replace(script.schedule, options=options)
    script.forced.moments[2].drafted = {"a": 1}
    script.forced.moments[2].proposed = {"a": (4,)}
    alone = Round("a", 1, 1, given=1, proposed=(5,))
    script.play = functools.partial(script.play, drafted_alone=lambda *_: ((alone,),))


def state_cast_down(script):
    script.free.moments[2].layers = (CachedLayer(8, False, ("bfloat16",)),)
    dtypes = {request.request_id: (("float32",),) for request in script.schedule.requests}
    script.play = functools.partial(script.play, dtypes=dtypes)


def processors_given_another_dtype(script):
    script.dtype = "bfloat16"
    script.free.moments[2].claims = (Claim("logits", "", "", True, dtype="float32"),)
    script.play = functools.partial(script.play, logits_dtype=lambda: "bfloat16")


def arrays_of_all_steps_kept(script):
    script.__init__(alone=True)
    moments = script.free.moments
    place = next(i for i, m in enumerate(moments) if Stage.DECODE in m.stages.values())
    waits = [dataclasses.replace(moments[place], events=[], forwards=[]) for _ in range(200)]
    for number, moment in enumerate(waits):
        moment.alive = Alive(100 + number, 64 * number)
    moments[place:place] = waits


def threads_of_all_cycles_kept(script):
    for take in (script.forced, script.free):
        take.left = tuple({"threads": 3 + number} for number in range(30))


def _stored(call, **more):
    kept = KeptSequence("user", (1, 2), 20, 20)
    counted = {"assistant": (0, 0), "user": (1, 20), "system": (0, 0)}
    return Stored(call, (1, 2), kept=(kept,), **({"counted": counted} | more))


def kept_prefix_not_found(script):
    script.free.moments[1].stored = (_stored(StoreCall.INSERT, kind="user", cut=True, most=2),)
    script.free.moments[2].stored = (_stored(StoreCall.FETCH, found=0),)


def bytes_counted_twice(script):
    counted = {"assistant": (0, 0), "user": (1, 40), "system": (0, 0)}
    call = _stored(StoreCall.INSERT, kind="user", cut=True, most=2, counted=counted)
    script.free.moments[1].stored = (call,)


def miscounted(script):
    right = Claim("tokens produced", "3", "3", True)
    script.free.moments[1].claims = (right, Claim("prompt tokens", "4", "6", False))


def misread(script):
    broken = Claim("the row's tokens", "3 tokens", "4 tokens", False, drift=True)
    script.free.moments[1].claims = (broken,)


def unanswered(script):
    broken = Claim("an answer", "the stream broke off", "one", False, failed=True)
    script.free.moments[1].claims = (broken,)


def kept_cache_given_away(script):
    script.free.moments[1].stored = (_stored(StoreCall.INSERT, kind="user", cut=True, most=2),)
    script.free.moments[2].stored = (_stored(StoreCall.FETCH, found=1, shared=True),)


def total_miscounted(script):
    call = _stored(StoreCall.INSERT, kind="user", cut=True, most=2, total=8)
    script.free.moments[1].stored = (call,)


def output_tokens_not_counted(script):
    script.free.counted = Counted(Pace(0, 0.0, 0.0), Pace(1), peak=1.0, wall=1.0)


PREFIX = Prefix(1, (1, 2, 3, 4))


def _pooled(script, *calls):
    options = EngineOptions(prefix_caching=PrefixCaching(blocks=1))
    script.schedule = msgspec.structs.replace(script.schedule, options=options)
    script.free.moments[1].pooled = calls


def _kept_in_pool(**more):
    sizes = {PREFIX: 8}
    options = {"nbytes": 8, "block_bytes": 8, "most": 8, "held": {PREFIX: 1}, "sizes": sizes}
    return Pooled(PoolCall.KEEP, PREFIX, **(options | more))


def kept_block_not_found(script):
    _pooled(script, _kept_in_pool(), Pooled(PoolCall.FIND, PREFIX, held={PREFIX: 2}))


def bytes_of_a_block_not_counted(script):
    _pooled(script, _kept_in_pool(counted=Rules(PrefixCaching()).counts))


def prefix_of_nobody_reused(script):
    script.free.moments[1].reused = {"a": 4}


def prefix_found_and_computed(script):
    script.free.moments[0].pooled = (Pooled(PoolCall.FIND_SNAPSHOT, Prefix(0, (1, 2, 3)), found=2),)
    script.free.moments[0].processed = {"a": 3}


V = Verdict
FIRES = {
    total_miscounted: {("store_rules", V.LEAK)},
    miscounted: {("claims", V.PROTOCOL)},
    misread: {("claims", V.DRIFT)},
    unanswered: {("failure", V.PROTOCOL)},
    kept_cache_given_away: {("store_rules", V.PROTOCOL)},
    output_tokens_not_counted: {("statistics", V.PROTOCOL)},
    kept_block_not_found: {("pool_rules", V.PROTOCOL)},
    bytes_of_a_block_not_counted: {("pool_rules", V.LEAK)},
    prefix_of_nobody_reused: {("reuse", V.PROTOCOL)},
    prefix_found_and_computed: {("reuse", V.COST)},
    state_cast_down: {("dtypes", V.DRIFT)},
    processors_given_another_dtype: {("dtypes", V.DRIFT)},
    arrays_of_all_steps_kept: {("leak", V.LEAK)},
    threads_of_all_cycles_kept: {("leak", V.LEAK)},
    kept_prefix_not_found: {("store_rules", V.PROTOCOL)},
    bytes_counted_twice: {("store_rules", V.LEAK)},
    nothing: set(),
    crash: {("failure", V.CRASH)},
    refusal: {("failure", V.UNSUPPORTED)},
    hang: {("failure", V.HANG)},
    nan_when_forced: {("nonfinite", V.NAN), ("forced", V.DRIFT)},
    infinity_when_forced: {("nonfinite", V.NAN), ("forced", V.DRIFT)},
    all_masked_but_alike: {("nonfinite", V.NAN)},
    stranger: {("protocol", V.PROTOCOL)},
    lost_first_token: {("protocol", V.PROTOCOL), ("forced", V.DRIFT)},
    token_after_its_removal: {("protocol", V.PROTOCOL)},
    token_after_its_finish: {("protocol", V.PROTOCOL)},
    without_logprobs: {("protocol", V.PROTOCOL)},
    finish_of_a_removed_request: {("protocol", V.PROTOCOL)},
    other_token_than_fed: {("protocol", V.PROTOCOL)},
    other_token_than_fed_before_removal: {("protocol", V.PROTOCOL)},
    stop_that_nobody_requested: {("protocol", V.PROTOCOL)},
    one_token_too_few: {("protocol", V.PROTOCOL)},
    small_drift: {("forced", V.DRIFT)},
    other_bits_in_half_precision: {("half_precision", V.DRIFT)},
    a_little_cold_in_half_precision: {("half_precision", V.DRIFT)},
    rows_spread_in_half_precision: {("half_precision", V.DRIFT)},
    twins_apart: {("twins", V.DRIFT)},
    other_token_on_equal_numbers: {("free", V.DIVERGED)},
    other_token_at_a_tie: {("free", V.TIE)},
    rubbish_in_the_repetition: {("stability", V.UNSTABLE)},
    ghost_row: {("leak", V.LEAK)},
    buffers_kept: {("leak", V.LEAK)},
    growing_graph: {("leak", V.LEAK)},
    draft_of_another_row: {("drafts", V.DRIFT)},
    draw_that_the_row_s_options_exclude: {("draws", V.DIVERGED)},
    seeds_alike: {("seeds", V.DIVERGED)},
    unlikely_draws: {("draws", V.DIVERGED)},
    positions_wasted: {("contract_counts", V.COST)},
    bytes_held: {("leak", V.LEAK)},
    accepted: {("probe", V.PROTOCOL)},
    refused_unclearly: {("probe", V.PROTOCOL)},
    half_applied: {("probe", V.PROTOCOL)},
    policy_that_raises: {("policy", V.POLICY)},
    draft_that_foresees_nothing: {("drafts", V.DRIFT)},
    another_policy: {("policy", V.POLICY)},
}


def fires(plant):
    script = Script()
    plant(script)
    play = script.play()
    return {(f.check, f.verdict) for check in CHECKS for f in check(play)}


@pytest.mark.parametrize("plant", FIRES, ids=lambda p: p.__name__)
def test_a_planted_fault_is_found_by_these_checks(plant):
    assert fires(plant) == FIRES[plant]


def test_every_check_alone_finds_some_fault():
    alone = {next(iter(found))[0] for found in FIRES.values() if len(found) == 1}
    names = {check.__module__.rpartition(".")[2] for check in CHECKS}
    assert alone == names
    assert len(names) == len(CHECKS)


# ------------------------------------------------- no check, and no finding of it, without a plant

# What makes a finding; other modules give what is wrong to who makes one.
MAKERS = {"Finding", "_finding"}
MODULES = [
    importlib.import_module(f"conformance.checks.{module.name}")
    for module in pkgutil.iter_modules(checks.__path__)
]


def sites(source):
    """Lines on which a finding is made, or a violation is given to who makes one of it."""
    tree = ast.parse(source)
    makers = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in MAKERS
    ]
    givers = [
        node
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and "Violation" in ast.unparse(function.returns)
        for node in ast.walk(function)
        if isinstance(node, ast.Yield)
    ]
    return {node.lineno for node in (*makers, *givers)}


def verdicts(source):
    """The verdicts that a module names."""
    return {
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "Verdict"
    }


def reached(plants, modules):
    """Lines of the modules that run while the checks look at what was planted, by file."""
    lines = {module.__file__: set() for module in modules}

    def follow(frame, event, _):
        if event == "line":
            lines[frame.f_code.co_filename].add(frame.f_lineno)
        return follow

    def enter(frame, event, argument):
        return follow(frame, event, argument) if frame.f_code.co_filename in lines else None

    before = sys.gettrace()
    try:
        sys.settrace(enter)
        for plant in plants:
            fires(plant)
    finally:
        sys.settrace(before)
    return lines


def unplanted(plants, modules=MODULES):
    """Places of findings that no planted bad input comes to: ``module:line``."""
    seen = reached(plants, modules)
    return [
        f"{module.__name__.rpartition('.')[2]}:{line}"
        for module in modules
        for line in sorted(sites(inspect.getsource(module)) - seen[module.__file__])
    ]


def test_every_place_where_a_check_makes_a_finding_is_come_to():
    assert unplanted(FIRES) == []


@pytest.mark.parametrize("left_out", [growing_graph, ghost_row, half_applied, hang])
def test_a_place_without_a_plant_is_reported(left_out):
    assert len(unplanted([plant for plant in FIRES if plant is not left_out])) == 1


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_every_verdict_that_a_check_can_give_is_given(check):
    name = check.__module__.rpartition(".")[2]
    can = verdicts(inspect.getsource(sys.modules[check.__module__]))
    given = {verdict.name for found in FIRES.values() for by, verdict in found if by == name}
    assert can == given


def test_all_modules_with_findings_are_among_the_checks():
    """A check that is in no list is never run."""
    makers = {module.__name__ for module in MODULES if sites(inspect.getsource(module))}
    assert makers == {check.__module__ for check in CHECKS}
