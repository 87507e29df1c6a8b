"""``mlx_lm.server`` as an engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from conformance.core.engine import Capability, Engine
from conformance.plugins.servers.asking import Answer
from conformance.plugins.servers.managed import ManagedEngine
from conformance.plugins.servers.served_engine import SERVED, Tokens
from conformance.plugins.servers.words import tokens_of, write_tokenizer
from conformance.run.hookspecs import hookimpl
from conformance.scenarios import Scenario
from conformance.scenarios.served import SERVED_SCENARIOS

_KEPT = "10"  # sequences, the server's default


class MlxLmServer(ManagedEngine):
    """``python -m mlx_lm.server``. A stream has no logprobs, so tokens are its words."""

    name: ClassVar[str] = "mlx_lm_server"
    library: ClassVar[str] = "mlx_lm"
    capabilities: ClassVar[frozenset[Capability]] = SERVED | {
        Capability.CANCEL,
        Capability.CHUNKED,
        Capability.COMPLETIONS,
        Capability.PREFIX_CACHING,
        Capability.PROBES,
        Capability.SAMPLERS,
        Capability.SLOTS,
        Capability.STOP,
    }

    @classmethod
    def module(cls) -> str:
        """See ``ManagedEngine.module``."""
        return "mlx_lm.server"

    def flags(self) -> Sequence[str]:
        """Sizes, and whether answers are kept for prompts that go on from them."""
        options = self._options
        return (
            *("--prefill-step-size", str(options.prefill_step_size)),
            *("--prompt-concurrency", str(options.prefill_batch_size)),
            *("--decode-concurrency", str(options.completion_batch_size)),
            *("--prompt-cache-size", _KEPT if options.prefix_caching is not None else "0"),
        )

    def dress(self, folder: Path) -> None:
        """Families of mlx-lm have no tokenizer."""
        write_tokenizer(folder, self._origin.family.vocab_size)

    def tokens(self, answer: Answer) -> Tokens:
        """Words; an answer in one piece has logprobs."""
        found = tokens_of(answer.text)
        logprobs = [entry.get("logprob") for entry in answer.entries]
        if len(logprobs) < len(found):
            logprobs = [None] * len(found)
        return list(zip(found, logprobs, strict=False))


@hookimpl
def conformance_engine_names() -> list[str]:
    """Without these nothing is imported."""
    return [MlxLmServer.name]


@hookimpl
def conformance_engines() -> list[type[Engine]]:
    """The server."""
    return [MlxLmServer]


@hookimpl
def conformance_scenarios() -> list[Scenario]:
    """What is asked of servers."""
    return list(SERVED_SCENARIOS)
