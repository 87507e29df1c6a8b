"""Results and reports made by hand: of every kind, very many, and some with hostile names."""

import defects_by_hand
import msgspec

from conformance.core.inventory import About, Account, Inventory
from conformance.core.invocation import Invocation
from conformance.core.verdict import CaseResult, Finding, Verdict
from conformance.report.pages.material import Material
from conformance.report.trials import Kill, Outcome, Trial

HOSTILE = (
    "<script>window.pwned = 1</script>",
    "</script><img src=x onerror='window.pwned = 2'>",
    "\"' onmouseover='window.pwned = 3' x=\"",
    "{{ 7 * 7 }}{% raw %}",
    "\u202egnp.exe\u2066 \ud800",
    "javascript:window.pwned=4",
)
"""Names that would do something in a page which does not escape them."""

LONG = "mask-of-length-in-quantized-caches-of-shorter-rows"
"""A known defect whose id is wider than a narrow window."""

INVOCATION = Invocation("2026-11-22T14:10:28Z", "conformance run --json today.jsonl")
SCENARIOS = ("repeat", "ragged", "staggered", "quantized")


def make_result(case_id="mlx_lm/llama/ragged/float32/0", verdict=Verdict.EXACT, **changes):
    """A result; a wrong one with one finding."""
    engine, family, scenario, dtype, seed = case_id.split("/")
    values = {
        "case": case_id,
        "engine": engine,
        "family": family,
        "scenario": scenario,
        "dtype": dtype,
        "seed": int(seed),
        "expected": verdict.good,
        "max_abs_diff": 0.0123456,
        "noise": 1e-5,
        "ratio": 1234.56,
        "first_bad_step": None if verdict.good else 3,
        "evidence": () if verdict.good else (make_finding(verdict),),
        "versions": {"mlx": "0.32.4", "mlx-lm": "0.32.2"},
        "device": "cpu (made by hand)",
        "seconds": 0.5,
        "forward_seconds": 0.25,
        "invocation": INVOCATION,
    }
    return CaseResult(verdict=verdict, **{**values, **changes})


def make_finding(verdict=Verdict.DIVERGED, **changes):
    """A finding with all its parts."""
    values = {
        "check": "tokens",
        "what": "request 'b' differs at output token 3",
        "schedule": "long_and_short",
        "mode": "free",
        "request_id": "b",
        "step": 3,
        "row": 1,
        "expected": "token 17",
        "got": "token 93",
        "margin": 0.42,
        "difference": 1.25,
        "noise": 1.2e-5,
        "cause": "left padding is not masked",
    }
    return Finding(verdict=verdict, **{**values, **changes})


def few():
    """Two engines, two dtypes and every kind of standing."""
    wrong = {
        "mlx_lm/qwen3/ragged/float32/0": {"verdict": Verdict.DIVERGED},
        "mlx_lm/mamba/ragged/float32/0": {
            "verdict": Verdict.DRIFT,
            "expected": True,
            "known": f"ssm-padding, {LONG}",
        },
        "mlx_lm/mamba/quantized/float32/0": {"verdict": Verdict.UNSUPPORTED, "expected": True},
        "mlx_vlm/llava/staggered/float32/0": {"verdict": Verdict.CRASH, "expected": False},
        "mlx_lm/gemma3/ragged/float32/0": {"verdict": Verdict.TIE},
    }
    cases = [
        f"{engine}/{family}/{scenario}/{dtype}/0"
        for engine, families in (
            ("mlx_lm", ("gemma3", "llama", "mamba", "qwen3", "qwen3_moe")),
            ("mlx_vlm", ("llava",)),
        )
        for family in families
        for dtype in (("float32", "bfloat16") if family == "llama" else ("float32",))
        for scenario in SCENARIOS
    ]
    return tuple(make_result(case, **wrong.get(case, {})) for case in cases)


def inventory():
    """The inventory of ``few``: one family and one scenario were not run."""
    caches = {"mamba": ("ArraysCache",), "gemma3": ("KVCache", "RotatingKVCache")}
    lm = ("gemma3", "gpt2", "llama", "mamba", "qwen3", "qwen3_moe")
    return Inventory(
        scenarios=(*SCENARIOS, "threads"),
        families={
            **{
                ("mlx_lm", name): About("mlx_lm", name, ("text",), caches.get(name, ("KVCache",)))
                for name in lm
            },
            ("mlx_vlm", "llava"): About("mlx_vlm", "llava", ("text", "image"), ("KVCache",)),
        },
        applicable={
            "mlx_lm": dict.fromkeys(lm, (*SCENARIOS, "threads")),
            "mlx_vlm": {"llava": SCENARIOS},
        },
        accounts=(Account("mlx_lm", {"llama": ("llama",)}, {"bert": "no decoder"}, ("new_one",)),),
    )


def everything():
    """A report that has every page."""
    results = few()
    kill = Kill("ragged", "diverged", ("tokens",), 500.0)
    trials = (
        Trial("B1.mask", "B1", "mlx_lm", "llama", "float32", 0, Outcome.KILLED, kills=(kill,)),
        Trial("B1.mask", "B1", "mlx_lm", "mamba", "float32", 0, Outcome.SURVIVED),
    )
    older = Invocation("2026-11-21T02:00:00Z", "conformance run --json yesterday.jsonl")
    before = tuple(
        make_result(result.case, Verdict.CRASH, invocation=older) for result in results[3:]
    )
    return Material(
        results,
        inventory(),
        trials=trials,
        before=before,
        scripts={"mlx_lm/qwen3/ragged/float32/0": "print('it is wrong')"},
        defects=defects_by_hand.known(
            defects_by_hand.entry("ssm-padding", suffers="mamba forgets its prompt."),
            defects_by_hand.entry(LONG, 2, families=("*",)),
        ),
    )


def of_release(results, version, day, package="mlx-lm"):
    """The results as if they were of another release, and of another day."""
    invocation = Invocation(f"{day}T02:00:00Z", "conformance run --json nightly.jsonl")
    versions = {"python": "3.12.1", "mlx": "0.32.4", package: version}
    return tuple(
        msgspec.structs.replace(result, versions=versions, invocation=invocation)
        for result in results
    )


def over_releases():
    """Two engines, one of them in three releases: something came, something went."""
    results = [result for result in few() if result.dtype == "float32"]
    lm = [result for result in results if result.engine == "mlx_lm"]
    vlm = [result for result in results if result.engine == "mlx_vlm"]
    oldest = [
        make_result(result.case, Verdict.CRASH) if result.family == "llama" else result
        for result in lm
    ]
    middle = [make_result(result.case) for result in lm]
    return (
        *of_release(oldest, "0.9.1", "2026-10-01"),
        *of_release(middle, "0.10.0", "2026-11-02"),
        *of_release(lm, "0.10.1", "2026-11-20"),
        *of_release(vlm, "0.7.10", "2026-11-21", "mlx-vlm"),
    )


def many(families=400, scenarios=30):
    """So many families and scenarios; one case in eight is wrong, each with its own text."""
    verdicts = (Verdict.DIVERGED, Verdict.CRASH, Verdict.UNSUPPORTED, Verdict.DRIFT)
    names = [f"scenario_{column}" for column in range(scenarios)]
    results = []
    for row in range(families):
        for column, name in enumerate(names):
            case = f"mlx_lm/family_{row:03}/{name}/float32/0"
            turn = row * 7 + column * 3
            if turn % 8:
                results.append(make_result(case))
            else:
                verdict = verdicts[turn // 8 % 4]
                finding = make_finding(verdict, what=f"request 'b' differs at token {turn}: " * 4)
                results.append(
                    make_result(case, verdict, expected=bool(turn % 16), evidence=(finding,))
                )
    return Material(tuple(results), Inventory(scenarios=tuple(names)))


def hostile():
    """Every text that a result has is hostile in some result."""
    results = []
    for number, name in enumerate(HOSTILE):
        plain = name.replace("/", "\u2215")
        finding = make_finding(what=name, schedule=name, request_id=name, expected=name, cause=name)
        results.append(
            make_result(
                f"{plain}/{plain}/{plain}/{plain}/{number}",
                Verdict.DIVERGED,
                case=f"{name}/{number}",
                engine=name,
                family=name,
                scenario=name,
                dtype=name,
                known=name,
                evidence=(finding,),
                versions={name: name},
                invocation=Invocation(name, name),
                device=name,
            )
        )
    return Material(
        tuple(results),
        Inventory(accounts=(Account(HOSTILE[0], {}, {HOSTILE[1]: HOSTILE[2]}, (HOSTILE[0],)),)),
    )
