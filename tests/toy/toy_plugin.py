"""A plugin whose families and faults behave as they are called, without any model."""

import atexit
import contextlib
import os
import signal
import time

from conformance.core.engine import Capability, Engine
from conformance.core.errors import Unsupported
from conformance.core.family import Facts, Family
from conformance.core.faults import Fault
from conformance.core.library import Coverage, Description, Library
from conformance.core.sensitivity import Sensitivity, Signal
from conformance.core.verdict import CaseResult, Finding, ScheduleResult, Verdict
from conformance.run.hookspecs import hookimpl
from conformance.run.session import Session
from conformance.scenarios import Scenario

FAMILIES = tuple(
    os.environ.get(
        "TOY_FAMILIES", "calm quiet tied broken silent fatal stuck frozen clumsy"
    ).split()
)
SCENARIOS = ("repeat", "ragged", "staggered")


class ToyLibrary(Library):
    name = "toy"

    def coverage(self):
        more = tuple(filter(None, os.environ.get("TOY_MODULES", "").split(",")))
        return Coverage(modules=(*FAMILIES, "helper", *more), excluded={"helper": "no model"})

    def versions(self):
        return {"toy": "1.2.3"}

    def device(self):
        return "abacus"

    def load(self, family, *, dtype, seed): ...
    def meter(self, model, *, evaluate=False): ...
    def single_stream(self, model, request, **options): ...
    def stateless(self, model, request, tokens): ...
    def teacher_forced(self, model, request, tokens, **options): ...
    def churn(self): ...

    def describe(self, model):
        return Description(("ToyCache",), "RoPE")

    def sensitivity(self, family, *, dtype, seed):
        if family.name == "quiet":
            raise Unsupported("no abacus is so large")
        if family.name == "fatal":
            os.kill(os.getpid(), signal.SIGSEGV)
        nats = 1e-5 if family.name == "silent" else 1.0
        return Sensitivity(8, 1, 3.0, (Signal("drop", "token 2", nats),), ())


class ToyEngine(Engine):
    name = "toy"
    library = "toy"
    capabilities = frozenset({Capability.FORCED})

    def __init__(self, model, options): ...
    def insert(self, submissions): ...
    def step(self): ...
    def remove(self, request_ids): ...
    def close(self): ...


@hookimpl
def conformance_libraries():
    return [ToyLibrary()]


@hookimpl
def conformance_families():
    return [
        Family(name, Facts(library="toy", window=8 if name == "calm" else None), {"vocab_size": 16})
        for name in FAMILIES
    ]


@hookimpl
def conformance_engines():
    return [ToyEngine]


@hookimpl
def conformance_scenarios():
    none = frozenset()
    return [
        Scenario(name, rung, f"the {name} ingredient", none, lambda brief: ())
        for rung, name in enumerate(SCENARIOS)
    ]


ACTIVE = []
FAULTS = ("caught", "uncaught", "deadly", "endless")


@hookimpl
def conformance_faults():
    return [
        Fault(name, "toys", "here", f"is {name}", "toy", (), ("ragged",), inject(name))
        for name in FAULTS
    ]


def inject(name):
    @contextlib.contextmanager
    def active(hits):
        hits.hit()
        ACTIVE.append(name)
        yield
        ACTIVE.remove(name)

    return active


def run(session, case, *, around=contextlib.nullcontext, until=None, only=()):
    """Follow the script of the fault, if there is one, else of the family."""
    with around("long_and_short"):
        if "caught" in ACTIVE:
            return broken(case)
        if "deadly" in ACTIVE:
            os.kill(os.getpid(), signal.SIGSEGV)
        if "endless" in ACTIVE and case.family == os.environ.get("TOY_ENDLESS"):
            time.sleep(60)
        return of_family(case)


def of_family(case):
    """Only ``ragged`` and ``staggered`` bring defects out."""
    log = os.environ.get("TOY_LOG")
    if log:
        with open(log, "a") as file:  # noqa: PTH123
            file.write(f"{os.getpid()} {case}\n")
    time.sleep(float(os.environ.get("TOY_SECONDS", "0")))
    if case.scenario == "repeat":
        return result(case, Verdict.EXACT)
    return BEHAVIOUR.get(case.family, exact)(case)


def exact(case):
    return result(case, Verdict.EXACT)


def broken(case):
    if case.scenario != "ragged":
        return exact(case)
    finding = Finding(
        verdict=Verdict.DIVERGED,
        check="tokens",
        what="the token differs from the single stream",
        schedule="long_and_short",
        mode="free",
        request_id="r2",
        step=7,
        row=1,
        expected="token 17",
        got="token 93",
        margin=0.42,
        difference=1.25,
        noise=1.2e-5,
        cause="left padding is not masked",
    )
    return result(case, Verdict.DIVERGED, finding)


def fatal(case):
    if case.scenario == "ragged":
        os.kill(os.getpid(), signal.SIGSEGV)
    return exact(case)


def stuck(case):
    if case.scenario == "ragged":
        time.sleep(60)
    return exact(case)


def frozen(case):
    """Hang where no Python signal handler is run, as native code does."""
    if case.scenario == "ragged":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        time.sleep(60)
    return exact(case)


def clumsy(case):
    if case.scenario == "ragged":
        raise RuntimeError("the harness stumbled")
    return exact(case)


def quitting(case):
    """End the process as if all were well."""
    if case.scenario == "ragged":
        os._exit(0)
    return exact(case)


def late(case):
    """The same, but when Python ends; what it found by then is wrong."""
    atexit.register(os._exit, 0)
    return broken(case)


BEHAVIOUR = {
    "tied": lambda case: result(case, Verdict.TIE),
    "broken": broken,
    "silent": lambda case: result(case, Verdict.DRIFT),
    "fatal": fatal,
    "stuck": stuck,
    "frozen": frozen,
    "clumsy": clumsy,
    "quitting": quitting,
    "late": late,
}


def result(case, verdict, *evidence):
    return CaseResult(
        case=str(case),
        engine=case.engine,
        family=case.family,
        scenario=case.scenario,
        dtype=case.dtype,
        seed=case.seed,
        verdict=verdict,
        expected=verdict.good,
        max_abs_diff=1.25 if evidence else 0.0,
        noise=1.2e-5,
        ratio=None,
        first_bad_step=evidence[0].step if evidence else None,
        evidence=evidence,
        versions={"toy": "1.2.3"},
        device="abacus",
        seconds=0.5,
        forward_seconds=0.25,
        schedules=(
            ScheduleResult(
                "long_and_short",
                verdict,
                forward_calls=9,
                forward_seconds=0.25,
                padded_positions=10,
                real_positions=30,
            ),
        ),
    )


Session.run = run
