"""How a script drives an engine without this project: the calls of the engine's own package."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReproCalls:
    """Lines of Python from which a script of ``conformance repro`` is made.

    ::

        ReproCalls(
            imports=("from my_engine import Scheduler",),
            construct="Scheduler(model)",
            insert="engine.submit(names, prompts, counts)",
            step="((r.id, r.token, r.logprobs) for r in engine.step())",
            remove="engine.cancel(names)",
        )

    Attributes:
        imports: imports of the engine's package.
        construct: an expression: the engine of ``model``, as mlx-lm makes it. It may name
            ``options``, the options that differ from their defaults, as keyword arguments.
        insert: a statement: ``engine`` gets the requests ``names``, with lists of token ids
            ``prompts`` and numbers of output tokens ``counts``, all in one call.
        step: an expression: one step of ``engine``; the name, token and logprobs of each new token.
            Without logprobs, the third is ``None``.
        remove: a statement: the requests ``names`` are cancelled; empty for an engine that can't.
        logprobs: whether ``step`` gives logprobs.
    """

    imports: tuple[str, ...]
    construct: str
    insert: str
    step: str
    remove: str = ""
    logprobs: bool = True
