"""The arguments that mlx-vlm's ``batch_generate`` passes to its generator, and its counts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

from conformance.core.faults.patching import replace
from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat
from conformance.power.properties.mlx_vlm.generator.batches import Library

ar: Any = compat.part("generate.ar")
utils: Any = compat.part("utils")

_FILE = "mlx_vlm/generate/ar.py"
_PROMPTS = [[1, 2, 3], [4]]


def batch_setting_properties() -> list[Property]:
    """The properties of a generator's arguments, and of media that are a single file."""
    names = ("batch_generate", "_generate_batch")
    return [
        Property("batches: arguments of a generator", _FILE, names, _arguments),
        Property("batches: single files", _FILE, names, _single),
    ]


class _Generator:
    """Replaces the generator: it gives each row its own number, and a stop.

    Attributes:
        calls: the arguments of each call.
    """

    calls: list[Any]

    def __init__(self, *given: Any, **options: Any) -> None:
        self.calls.append((given, options))
        self._left = 2

    def insert(self, tokens: Any, most: Any, **options: Any) -> list[int]:
        """Add rows, with numbers that differ from their places."""
        self.calls.append((tokens.tolist(), most, options))
        return [9, 8][: len(tokens)]

    @property
    def has_work(self) -> bool:
        """Whether tokens are left."""
        return self._left > 0

    def next(self) -> Any:
        """First a token for each row, then its end."""
        self._left -= 1
        reason = None if self._left else "stop"
        rows = [SimpleNamespace(uid=n, token=n, finish_reason=reason) for n in (8, 9)]
        return [], rows if self._left else [*rows[:1], _last(9)]

    def close(self) -> None:
        """End the generator."""
        self.calls.append("closed")

    def stats(self) -> Any:
        """Statistics of four decoded tokens."""
        return ar.BatchStats(prompt_tokens=4, prompt_time=self.seconds, generation_tokens=4)

    seconds = 0.5


def _last(number: int) -> Any:
    return SimpleNamespace(uid=number, token=number + 1, finish_reason="length")


def _arguments() -> Iterator[str]:
    """Settings, each row's part of the inputs, and whether prompts may be cut."""
    steps: tuple[dict[str, Any], ...] = (
        {},
        {"prefill_step_size": None},
        {"prefill_step_size": 5},
    )
    for step, allowed, drafted, offload in itertools.product(
        steps, (False, True), (False, True), (False, True)
    ):
        asked: list[Any] = []
        drafter = {"draft_model": "drafter", "draft_kind": "kind"} if drafted else {}
        library = Library(_PROMPTS)
        library.model.chunked_prefill_policy = partial(_policy, asked, allowed=allowed)
        if offload:
            library.model.moe_offload_store = "experts"
        calls: list[Any] = []
        generator = type("Generator", (_Generator,), {"calls": calls})
        with (
            library.instead(),
            replace(ar.logger, "disabled", True),
            replace(ar, "BatchGenerator", generator),
            replace(ar, "speculative_prefill_kwargs", lambda *of: {"layers": of}),
        ):
            got = ar.batch_generate(
                library.model,
                library.processor,
                prompts=["0", "1"],
                max_tokens=[3, 4],
                kv_bits=6,
                **step,
                **drafter,
            )
        size = step.get("prefill_step_size", ar.DEFAULT_PREFILL_STEP_SIZE)
        if size is None and offload and not drafted:
            size = ar.DEFAULT_PREFILL_STEP_SIZE
        yield from _policy_off(asked, drafter, size)
        options = {
            "prefill_batch_size": 2,
            "completion_batch_size": 2,
            "compute_logprobs": False,
            "kv_bits": 6,
            "prefill_step_size": size if allowed else None,
            **drafter,
        }
        made = (library.model.language_model, library.processor), options
        if calls[0] != made or calls[2:] != ["closed"]:
            yield f"a generator is made with {calls[0]}, not {made}, then {calls[2:]}"
        yield from _rows_off(calls[1])
        if got.texts != ["[9, 10]", "[8]"]:
            yield f"the answers are {got.texts}"
    yield from _speeds()
    yield from _bare()


def _bare() -> Iterator[str]:
    """A tokenizer without a processor around it."""
    library = Library(_PROMPTS)
    bare = library.processor.tokenizer
    bare.detokenizer = library.processor.detokenizer
    library.processor = bare
    with library.instead():
        for images in (None, [SimpleNamespace(number=0, height=4, width=4, size=(4, 4))]):
            got = ar.batch_generate(library.model, bare, images, prompts=["0", "1"], max_tokens=2)
            if len(got.texts) != 2:
                yield f"with a tokenizer alone the answers are {got.texts}"


def _policy(asked: list[Any], *, allowed: bool, **given: Any) -> bool:
    """The model's answer whether prompts may be cut."""
    asked.append(given)
    return allowed


def _policy_off(asked: list[Any], drafter: dict[str, Any], size: int | None) -> Iterator[str]:
    """The model is asked whether prompts may be cut if they would be."""
    if bool(asked) != (size is not None):
        yield f"with {size} columns it is asked {len(asked)} times whether prompts may be cut"
    for given in asked:
        layers = {"layers": ("drafter", "kind")[::-1]} if drafter else {}
        kwargs = given.pop("prefill_kwargs")
        shapes = [given.pop(name).shape[:2] for name in ("input_ids", "inputs_embeds")]
        embeds = kwargs.pop("inputs_embeds").shape[:2]
        named = {"draft_model": None, "draft_kind": None, "prompt_cache": None, **drafter}
        if [*shapes, embeds] != [(2, 3)] * 3 or given != named or kwargs != layers:
            yield f"whether prompts may be cut is asked with {given}, {kwargs}"


def _rows_off(calls: tuple[Any, Any, dict[str, Any]]) -> Iterator[str]:
    tokens, most, options = calls
    mask = options.pop("attention_mask").tolist()
    rows = [{name: a.shape for name, a in row.items()} for row in options.pop("prompt_kwargs")]
    if (tokens, most, mask) != ([[1, 2, 3], [0, 0, 4]], [3, 4], [[1, 1, 1], [0, 0, 1]]):
        yield f"the rows are {tokens}, of at most {most} tokens, masked by {mask}"
    if len(rows) != 2 or any(row["inputs_embeds"][:2] != (1, 3) for row in rows):
        yield f"the inputs of rows are {rows}"
    if options != {"logits_processors": None}:
        yield f"the rows have {options}"


def _speeds() -> Iterator[str]:
    """A call's time is split into prompts and answers; if answers took none, their speed is 0."""
    for seconds, want in ((0.5, (0.5, 8.0)), (1, (0, 0))):
        library = Library(_PROMPTS)
        generator = type("Generator", (_Generator,), {"calls": [], "seconds": seconds})
        with library.instead(), replace(ar, "BatchGenerator", generator):
            stats = ar.batch_generate(library.model, library.processor, prompts=["0", "1"]).stats
        if (stats.generation_time, stats.generation_tps) != want:
            yield f"after {seconds} of prompts answers take {stats}"


def _one_image() -> Iterator[str]:
    """An image is opened by the image processor's settings, if there is one."""
    for own in (None, "of images"):
        library = Library(_PROMPTS)
        if own is not None:
            library.processor.image_processor = own
        opened: list[Any] = []
        image = SimpleNamespace(number=1, height=4, width=6)

        def open_image(*given: Any, opened: list[Any] = opened, image: Any = image) -> Any:
            opened.append(given)
            return image

        with library.instead(), replace(utils, "process_image", open_image):
            got = ar.batch_generate(
                library.model, library.processor, "a path", prompts=["0", "1"], max_tokens=1
            )
        if opened != [("a path", None, own)] or got.image_sizes != [(4, 6), None]:
            yield f"an image is opened with {opened}, its size is {got.image_sizes}"


def _single() -> Iterator[str]:
    """A path is one file for the first prompt; too many files are refused with their kind."""
    for name, value in (("audios", "a"), ("videos", "v")):
        library = Library(_PROMPTS)
        with library.instead():
            ar.batch_generate(
                library.model, library.processor, prompts=["0", "1"], max_tokens=1, **{name: value}
            )
        given = library.inputs[0]
        got = given["audio"], given["videos"], given["images"]
        want = (["a"], None, None) if name == "audios" else (None, ["v"], None)
        if got != want:
            yield f"of the path {value} inputs are asked for with {got}"
    yield from _one_image()
    library = Library(_PROMPTS)
    taken = {"fps": 2, "nframes": 3, "min_frames": 4, "max_frames": 5, "frame_factor": 6}
    with library.instead():
        ar.batch_generate(
            library.model,
            library.processor,
            prompts=["0", "1"],
            videos=["v"],
            max_tokens=1,
            **taken,
        )
    if {name: library.inputs[0].get(name) for name in taken} != taken:
        yield f"frames are taken by {library.inputs[0]}"
    for name in ("images", "audios", "videos"):
        library = Library(_PROMPTS)
        files = {"audios": [], name: ["file"] * 3}
        with library.instead():
            try:
                ar.batch_generate(library.model, library.processor, prompts=["0", "1"], **files)
            except ValueError as error:
                if f"3 {name} for 2 prompts" not in str(error):
                    yield f"too many {name} are refused with {error}"
                continue
        yield f"too many {name} are taken"
