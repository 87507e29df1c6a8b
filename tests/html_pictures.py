"""Pictures, explanations and trials made by hand, for the pages that draw them."""

from results_by_hand import HOSTILE, make_result

from conformance.core.inventory import Inventory
from conformance.core.picture import Compared, Lane, Picture
from conformance.core.verdict import Verdict
from conformance.report.explanation import Explanation, LayerError, Relative, Where
from conformance.report.pages.material import Material
from conformance.report.trials import Kill, Outcome, Trial

CASE = "mlx_lm/llama/ragged/float32/0"


def make_compared(**changes):
    """Three tokens, of which the second is another one."""
    values = {
        "request_id": "b",
        "expected": (5, 9, 7),
        "got": (5, 8, 7),
        "mode": "forced",
        "difference": (1e-6, 0.5, None),
        "noise": (1e-5, 1e-5, 1e-5),
        "margin": (1.5, 0.2, 3.0),
        "bad": 1,
    }
    return Compared(**{**values, **changes})


def make_picture(**changes):
    """``a`` has 6 prompt tokens and ``b`` 2, in one call; ``c`` is cancelled in the queue."""
    values = {
        "schedule": "long_and_short",
        "mode": "free",
        "steps": 6,
        "rows": 3,
        "lanes": (
            Lane("a", "1q1p3d1f", ((0, 6), (1, 1))),
            Lane("b", "1q1p2d1f", ((0, 2), (1, 1))),
            Lane("c", "1-2q1x"),
        ),
        "calls": ("2x6", "2x1", "2x1", "2x1", "1x1", ""),
        "cache_bytes": (1024, 2048, 2048, None, 1024, 0),
        "probes": ((2, "unknown_uid"),),
        "compared": make_compared(),
    }
    return Picture(**{**values, **changes})


def make_explanation(**changes):
    """The third of three layers differs."""
    values = {
        "case": CASE,
        "schedule": "long_and_short",
        "verdict": "diverged",
        "what": "off",
        "where": Where("module:model.layers.2:Attention", "b", 1, 4, 2, 1, 1, 0.4, "after norm"),
        "entry": None,
        "ingredients": (),
        "suffices": True,
        "layers": tuple(
            LayerError(f"model.layers.{n}", error, 1e-7) for n, error in enumerate((0.0, 2e-7, 0.4))
        ),
        "steps": (),
        "opinion": "model: wrong alone, too",
        "relatives": (Relative("rope offset", 6.0, ("mlx_lm/B4",), ("mlx-vlm #1030",), fits=True),),
        "seconds": 1.0,
    }
    return Explanation(**{**values, **changes})


def make_trial(fault="B4.offset", family="llama", outcome=Outcome.KILLED, **changes):
    """One pair of fault and family; killed by a drift in ``ragged``."""
    kills = (Kill("ragged", "drift", ("forced",), 123.0),) if outcome is Outcome.KILLED else ()
    values = {
        "fault_class": "rope offset",
        "engine": "mlx_lm",
        "dtype": "float32",
        "seed": 0,
        "kills": kills,
        "tried": ("ragged",),
    }
    return Trial(fault=fault, family=family, outcome=outcome, **{**values, **changes})


def make_trials():
    """Three faults of two classes in two families, with each outcome."""
    return (
        make_trial(),
        make_trial(family="mamba", outcome=Outcome.NOT_APPLICABLE, why="no rope"),
        make_trial("A1.mask", outcome=Outcome.SURVIVED, fault_class="masks"),
        make_trial("A1.mask", "mamba", Outcome.HIDDEN, fault_class="masks", why="wrong too"),
        make_trial("A2.idle", outcome=Outcome.NOT_APPLICABLE, fault_class="masks"),
    )


def drawn(**changes):
    """A wrong result with a picture."""
    return make_result(CASE, **{"verdict": Verdict.DIVERGED, "picture": make_picture(), **changes})


def hostile_picture(name=HOSTILE[1]):
    """Every text of it is hostile."""
    return make_picture(
        schedule=name,
        mode=name,
        lanes=(Lane(name, "1q1p1d1f", ((0, 3),)), Lane(name, name)),
        calls=(name, "2x6"),
        probes=((1, name),),
        stopped=name,
        compared=make_compared(request_id=name, mode=name),
    )


def hostile_explanation(name=HOSTILE[1]):
    """Every text of it is hostile."""
    where = Where(name, name, detail=name)
    return make_explanation(
        where=where,
        entry=where,
        layers=(LayerError(name, None, 0.0),),
        opinion=name,
        relatives=(Relative(name, 1.0, (name,), (name,)),),
    )


def charted(script="print('of the batch')\n"):
    """A report with every charted page; one case with all that its page can show, one with none."""
    full = drawn()
    bare = make_result("mlx_lm/mamba/ragged/float32/0", Verdict.CRASH)
    good = make_result("mlx_lm/llama/repeat/float32/0")
    before = (good, make_result(CASE), bare)
    return Material(
        (full, bare, good),
        Inventory(),
        trials=make_trials(),
        before=before,
        explanations={CASE: make_explanation()},
        scripts={CASE: script},
    )


def hostile_charted(name):
    """The same with a hostile text wherever one may be."""
    case = f"{name.replace('/', chr(0x2215))}/f/s/d/0"
    full = make_result(case, Verdict.DIVERGED, picture=hostile_picture(name), known=name)
    trials = [
        make_trial(name, name, outcome, fault_class=name, engine=name, why=name)
        for outcome in (Outcome.SURVIVED, Outcome.HIDDEN)
    ]
    return Material(
        (full,),
        Inventory(),
        trials=tuple(trials),
        before=(make_result(case),),
        explanations={case: hostile_explanation(name)},
        scripts={case: name},
    )
