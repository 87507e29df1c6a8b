"""The library protocol: what the harness needs of a model library, apart from batched engines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from conformance.core.engine_options import EngineOptions
from conformance.core.errors import Unsupported
from conformance.core.family import Family
from conformance.core.phases import ForwardCall
from conformance.core.properties import Property
from conformance.core.schedule import Media, Request
from conformance.core.sensitivity import Sensitivity
from conformance.core.trace import Stream
from conformance.core.unavailable import Unavailable


@dataclass(frozen=True)
class Solo:
    """The single stream of one request, and its cache for a request that continues it."""

    stream: Stream
    cache: Any


@dataclass(frozen=True)
class Coverage:
    """Coverage of the library's modules.

    Attributes:
        modules: the model modules that the installed library ships.
        excluded: modules that are not autoregressive language models, with the reason.
    """

    modules: tuple[str, ...]
    excluded: Mapping[str, str]


@dataclass(frozen=True)
class Description:
    """Kinds of a model's caches, positions and states; ``inner``: of all caches but the last."""

    caches: tuple[str, ...]
    positions: str
    states: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()


class Library(ABC):
    """A model library, for example mlx-lm. Its models are opaque to all other code."""

    name: ClassVar[str]
    schemes: ClassVar[tuple[str, ...]] = ("uniform",)
    """Ways to quantize its caches; see ``options.KvQuant``."""
    filters: ClassVar[Mapping[str, float]] = {}
    """Arguments of its samplers that mlx-lm's do not take, each of which removes tokens."""
    package: ClassVar[str] = ""  # the package with the models' code; if empty, no oracle is stored
    blamed: ClassVar[str] = "the library"  # the subject of failures that precede any batch
    own_limits: ClassVar[bool] = False  # a shorter answer need not be the beginning of a longer one

    @abstractmethod
    def coverage(self) -> Coverage:
        """The modules of the installed release, read at run time."""

    @abstractmethod
    def load(self, family: Family, *, dtype: str, seed: int) -> Any:
        """Build the family's tiny model and load it with the library's own loading code.

        A real checkpoint's family is loaded from the checkpoint's folder and cast to ``dtype``.

        Raises:
            Unsupported: the library reports that it cannot run this family here.
            ModelError: the model could not be built or loaded.
        """

    def properties(self) -> Sequence[Property | Unavailable]:
        """Functions of the library that need no model, and those that this release lacks."""
        return ()

    def check(self, folder: Path, *, trusted: bool = False) -> None:  # noqa: ARG002
        """Check that a checkpoint's config and weights fit each other; weights are not read.

        Raises:
            Unsupported: the library has no such model, or the plugin loads no checkpoints.
            ModelError: they do not fit; with the library's message.
        """
        raise Unsupported(f"the plugin of library {self.name} loads no checkpoints")

    def not_finite(self, folder: Path, *, trusted: bool = False) -> str | None:  # noqa: ARG002
        """Path of a parameter with NaN or infinity; called if the checkpoint's files have one."""
        return ""  # nothing in the files may be left out

    def tokenize(
        self,
        folder: Path,  # noqa: ARG002
        texts: Sequence[str],  # noqa: ARG002
        *,
        trusted: bool = False,  # noqa: ARG002
    ) -> tuple[tuple[int, ...], ...]:
        """Token ids of texts from a checkpoint's own tokenizer, without special tokens.

        Raises:
            Unsupported: the plugin loads no checkpoints.
            ModelError: the tokenizer can't be loaded; with the library's message.
        """
        raise Unsupported(f"the plugin of library {self.name} loads no checkpoints")

    def write(self, family: Family, folder: Path, *, dtype: str, seed: int) -> None:  # noqa: ARG002
        """Write the checkpoint that ``load`` loads to ``folder``, for other programs.

        Raises:
            Unsupported: the plugin writes no checkpoints, or the library cannot run the family
                here.
            ModelError: the model could not be built.
        """
        raise Unsupported(f"the plugin of library {self.name} writes no {family.name}")

    @abstractmethod
    def meter(self, model: Any, *, evaluate: bool = False) -> list[ForwardCall]:
        """A list to which each later call of ``model`` is appended.

        With ``evaluate``, a call's output is computed within the call, so that its seconds include
        all its cost; for benchmarks.
        """

    def decoder(self, model: Any) -> Any:
        """The tree of modules whose calls ``meter`` counts."""
        return model

    def bounds_caches(self, model: Any) -> bool:  # noqa: ARG002
        """Whether ``EngineOptions.max_kv_size`` has an effect: not if the model makes caches."""
        return False

    @abstractmethod
    def single_stream(
        self,
        model: Any,
        request: Request,
        *,
        options: EngineOptions,
        steps: int,
        prefix: Any = None,
        forced: tuple[int, ...] | None = None,
    ) -> Solo:
        """Decode ``request`` for ``steps`` tokens with the library's single-stream function.

        Stop sequences are not applied. ``prefix`` is a cache to continue from; the call uses it up.
        ``forced`` are tokens to feed instead of the chosen tokens.
        """

    def again(self, model: Any, request: Request, *, options: EngineOptions, steps: int) -> Stream:
        """The single stream that a user of the library gets, to compare with ``single_stream``.

        The two differ only if ``single_stream`` works around a defect that leaves no oracle.
        """
        return self.single_stream(model, request, options=options, steps=steps).stream

    def logits_dtype(
        self,
        model: Any,  # noqa: ARG002
        request: Request,  # noqa: ARG002
        options: EngineOptions,  # noqa: ARG002
    ) -> str:
        """The dtype of the logits that processors are given in the single stream of ``request``.

        Empty if that is not known.
        """
        return ""

    def reloaded(self, cache: Any) -> Any | None:  # noqa: ARG002
        """The cache of a single stream, saved and loaded; ``None`` if the library saves none."""
        return None

    @abstractmethod
    def stateless(self, model: Any, request: Request, tokens: tuple[int, ...]) -> np.ndarray | None:
        """Logprobs ``[vocab]`` of the token after ``request.prompt + tokens``, without a cache.

        ``None`` if ``tokens`` would have another meaning in a prompt.
        """

    def equal_rows(
        self,
        model: Any,  # noqa: ARG002
        request: Request,  # noqa: ARG002
        tokens: tuple[int, ...],  # noqa: ARG002
        rows: int,  # noqa: ARG002
    ) -> np.ndarray | None:
        """Logprobs ``[rows, vocab]`` of the token after ``request.prompt + tokens``, in a batch.

        All rows are that one, and only the last pass is shared: nothing is padded, no position
        differs. ``None`` if the library cannot arrange it.
        """
        return None

    @abstractmethod
    def teacher_forced(
        self,
        model: Any,
        request: Request,
        tokens: tuple[int, ...],
        *,
        options: EngineOptions,
        ulps: float = 0.0,
        seed: int = 0,
    ) -> np.ndarray:
        """Logprobs ``[len(tokens), vocab]`` from which ``tokens`` are chosen after the prompt.

        The cache is quantized as in ``options``; all other options are ignored.

        With ``ulps`` above 0, the outputs of the embedding and of each layer are multiplied by
        ``1 + ulps * eps * u`` with u uniform in (-1, 1) (Monte Carlo arithmetic).
        """

    def decoder_perturbed(
        self,
        model: Any,  # noqa: ARG002
        *,
        ulps: float,  # noqa: ARG002
        seed: int,  # noqa: ARG002
    ) -> AbstractContextManager[None]:
        """Perturb the part that decodes, as in ``teacher_forced``."""
        return nullcontext()

    def encoders_perturbed(
        self,
        model: Any,  # noqa: ARG002
        *,
        ulps: float,  # noqa: ARG002
        seed: int,  # noqa: ARG002
    ) -> AbstractContextManager[None]:
        """Perturb media encoders, whose rounding is the same in all runs on one device."""
        return nullcontext()

    def fingerprint(self, model: Any) -> str:  # noqa: ARG002
        """A hash of the bits of all loaded parameters; empty if unknown."""
        return ""

    def head_sizes(self, model: Any) -> frozenset[int]:  # noqa: ARG002
        """Head sizes, in elements, of the keys and values that the library can quantize."""
        return frozenset()

    def policy_stream(
        self,
        model: Any,  # noqa: ARG002
        request: Request,  # noqa: ARG002
        tokens: tuple[int, ...],  # noqa: ARG002
        *,
        options: EngineOptions,  # noqa: ARG002
    ) -> np.ndarray | None:
        """The library's single stream when ``options.kv`` is passed to its function.

        ``single_stream`` quantizes like a batch of one; a library whose single stream follows
        another policy returns that stream's output here.

        Returns: logprobs ``[len(tokens), vocab]`` from which ``tokens`` are chosen, or ``None`` if
        there is only one policy.
        """
        return None

    def compose(
        self,
        model: Any,  # noqa: ARG002
        parts: Sequence[tuple[int, ...] | Media],
    ) -> tuple[tuple[int, ...], tuple[Media, ...]]:
        """A prompt of text and media: its token ids, and the media with their spans in it.

        Raises:
            Unsupported: the library's models do not take such media.
        """
        prompt: list[int] = []
        for part in parts:
            if isinstance(part, Media):
                raise Unsupported(f"library {self.name} takes no {part.kind}")
            prompt += part
        return tuple(prompt), ()

    def processed(self, model: Any, request: Request) -> dict[str, Any]:  # noqa: ARG002
        """NumPy arrays of the library's processor, by name; empty for token ids."""
        return {}

    def puts_media_last(self, model: Any) -> bool:  # noqa: ARG002
        """Whether the library's chat template puts a prompt's media after its text."""
        return False

    def word(self, model: Any, token: int) -> str:  # noqa: ARG002
        """The text of a token, if tokens have texts that a user knows; else empty."""
        return ""

    @abstractmethod
    def churn(self) -> None:
        """Fill the allocator's free memory, so that reads of uninitialized memory show."""

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """Versions of everything that results depend on."""

    @abstractmethod
    def device(self) -> str:
        """The device that models run on, with its chip if known."""

    def describe(self, model: Any) -> Description:  # noqa: ARG002
        """The kinds of parts of a loaded model.

        Raises:
            Unsupported: the plugin does not implement it.
        """
        raise Unsupported(f"the plugin of library {self.name} describes no models")

    def code_traits(self, model: Any) -> frozenset[str]:  # noqa: ARG002
        """Further traits that decide which shared code runs, such as ``part:ssm.ssm_update``."""
        return frozenset()

    def outline(self, family: Family) -> Outline:
        """The kinds of parts that the family's model would have; the config may be of full size.

        Raises:
            Unsupported: the plugin does not implement it, or the library has no such model.
            ModelError: the library failed to build the model.
        """
        raise Unsupported(f"the plugin of library {self.name} outlines no models: {family.name}")

    def sensitivity(self, family: Family, *, dtype: str, seed: int) -> Sensitivity:  # noqa: ARG002
        """How sensitive the family's model is to small defects.

        Raises:
            Unsupported: the plugin cannot measure it, or the library cannot run the family here.
            ModelError: the model could not be built, loaded or run.
        """
        raise Unsupported(f"the plugin of library {self.name} measures no sensitivity")

    def calibrate(self, family: Family) -> bool:
        """Search a better weights recipe for a family, and write it to the family's file, if any.

        Returns: whether a recipe was written.

        Raises:
            Unsupported: the plugin cannot do it, or the library cannot run the family here.
            ModelError: the model could not be built, loaded or run.
            FamilyError: the family's file could not be written.
        """
        raise Unsupported(f"the plugin of library {self.name} has no calibration for {family.name}")


@dataclass(frozen=True)
class Outline:
    """The kinds of a model's parts, at any size, without its weights.

    Attributes:
        module: the library's module that its class is from.
        kinds: by path (``model.layers``) the different kinds of modules in that list; under
            ``caches`` the classes of its caches.
        settings: the fields of every settings object in it, with the library's defaults.
        parameters: by path the number of elements of each.
    """

    module: str
    kinds: Mapping[str, frozenset[str]]
    settings: tuple[Mapping[str, Any], ...] = ()
    parameters: Mapping[str, int] = field(default_factory=dict)
