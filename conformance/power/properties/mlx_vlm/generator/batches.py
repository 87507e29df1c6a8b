"""mlx-vlm's ``batch_generate`` with a model of a few lines: the answer of each prompt."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np

from conformance.backend.expected_rows import Asked, Biased, answer
from conformance.backend.stub_model import EMBEDDINGS, SIZE, VOCAB
from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat
from conformance.power.properties.mlx_vlm.generator.generators import Stops, stub

ar: Any = compat.part("generate.ar")

_FILE = "mlx_vlm/generate/ar.py"
_STOP = 5
_PICTURE = np.random.default_rng(8).normal(0, 0.5, SIZE).astype(np.float32)


def batch_properties() -> list[Property]:
    """The properties of ``batch_generate``."""
    names = (
        *("batch_generate", "_generate_batch", "normalize_resize_shape", "_clone_or_*"),
        *("BatchGenerator.insert", "BatchGenerator.stats", "_unpad_batch_prompts"),
    )
    return [
        Property("batches: answers", _FILE, names, _answers),
        Property("batches: what is asked", _FILE, names, _asked),
        Property("batches: sizes of images", _FILE, ("normalize_resize_shape",), _sizes),
    ]


class _Said:
    """Replaces a detokenizer: its text is the numbers of the tokens."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._tokens: list[int] = []
        self.text = "not ended"

    def add_token(self, token: int) -> None:
        self._tokens.append(token)

    def finalize(self) -> None:
        self.text = str(self._tokens)


class Library:
    """Replaces and records the functions that ``batch_generate`` calls: templates and inputs."""

    def __init__(self, prompts: Sequence[Sequence[int]]) -> None:
        self._prompts = prompts
        self.templates: list[tuple[Any, ...]] = []
        self.inputs: list[dict[str, Any]] = []
        self.model = SimpleNamespace(
            language_model=stub((None,)),
            config=SimpleNamespace(model_type="stub", image_token_index=3),
            get_input_embeddings=self.embed,
        )
        tokenizer = SimpleNamespace(stopping_criteria=Stops())
        tokenizer.stopping_criteria.tokens |= {_STOP}
        self.processor = SimpleNamespace(tokenizer=tokenizer, detokenizer=_Said())

    def template(self, processor: Any, config: Any, prompt: str, **given: Any) -> str:
        """The prompt by the chat template."""
        if (processor, config) != (self.processor, self.model.config):
            raise ValueError("a template is asked for with another processor or config")
        self.templates.append((prompt, given))
        return f"<{prompt}>"

    def prepare(self, processor: Any, **given: Any) -> dict[str, Any]:
        """Inputs padded on the left, as by tokenizers."""
        if processor is not self.processor:
            raise ValueError("inputs are asked for with another processor")
        self.inputs.append(given)
        rows = [list(self._prompts[int(text[1:-1])]) for text in given["prompts"]]
        longest = max(map(len, rows))
        shown = given.get("images")
        return {
            "input_ids": mx.array([[0] * (longest - len(row)) + row for row in rows]),
            "attention_mask": mx.array(
                [[int(n >= longest - len(r)) for n in range(longest)] for r in rows]
            ),
            "pixel_values": shown and mx.array([float(image.number) for image in shown]),
        }

    def embed(self, tokens: mx.array, pixels: Any, *, mask: Any, **given: Any) -> Any:
        """Embeddings in which each image changes its row, by its number."""
        if mask is None or mask.shape != tokens.shape or given:
            raise ValueError("embeddings are asked for without the mask, or with more")
        found = EMBEDDINGS[np.array(tokens)]
        for row, number in enumerate([] if pixels is None else pixels.tolist()):
            found[row] += number * _PICTURE
        embeds = mx.array(found)
        fields = {"inputs_embeds": embeds, "none": None}
        return SimpleNamespace(inputs_embeds=embeds, to_dict=lambda: fields)

    @contextlib.contextmanager
    def instead(self) -> Iterator[None]:
        """Inside the block, the library calls these functions."""
        names: dict[str, Any] = {
            "time": SimpleNamespace(perf_counter=itertools.count().__next__),
            "apply_chat_template": self.template,
            "prepare_inputs": self.prepare,
            "should_add_special_tokens": lambda kind, _: f"by {kind}",
        }
        right = {name: getattr(ar, name) for name in names}
        try:
            vars(ar).update(names)
            yield
        finally:
            vars(ar).update(right)


def _image(number: int, height: int, width: int) -> Any:
    return SimpleNamespace(number=number, height=height, width=width, size=(width, height))


def _rows(seed: int, count: int) -> list[Asked]:
    draw = np.random.default_rng(seed)
    return [
        Asked(draw.integers(1, VOCAB, int(draw.integers(1, 8))).tolist(), int(draw.integers(1, 7)))
        for _ in range(count)
    ]


def _text(asked: Asked) -> tuple[str, int]:
    """The text of an answer, and its number of counted tokens."""
    given = list(answer(asked, {(_STOP,)}))
    return str([one.token for one in given if one.reason != "stop"]), len(given)


def _answers() -> Iterator[str]:
    """Answers in the order of prompts, however grouped, and the counts of all groups."""
    shapes = [(4, 6), (8, 8), (4, 6), (6, 4), (8, 8)]
    cases = itertools.product((0, 1, 2, 3, 5), (True, False), ("", "all", "each"))
    for number, (shown, grouped, biased) in enumerate(cases):
        most = 4 if number % 3 == 1 else None
        some = _rows(number, 5)
        # Without groups all images have one size.
        sizes = shapes if grouped else [(4, 6)] * 5
        images = [_image(n + 1, *sizes[n]) for n in range(shown)]
        library = Library([one.tokens for one in some])
        for row, one in enumerate(some):
            one.most = most or one.most
            if row < shown:
                one.hidden = one.embeddings() + (row + 1) * _PICTURE
            if biased:
                one.processors = [Biased(2 if biased == "all" else row)]
        options: dict[str, Any] = {"images": images or None, "group_by_shape": grouped}
        if biased:
            each = [one.processors for one in some]
            options["logits_processors"] = each if biased == "each" else each[0]
        with library.instead(), _silent():
            got = ar.batch_generate(
                library.model,
                library.processor,
                prompts=[str(n) for n in range(5)],
                max_tokens=most or [one.most for one in some],
                track_image_sizes=number % 5 != 0,
                **options,
            )
        want = [_text(one) for one in some]
        if got.texts != [text for text, _ in want]:
            yield f"{shown} images, processors for {biased or 'none'}: {got.texts}, not {want}"
        seen = [*sizes[:shown], *[None] * (5 - shown)] if shown and number % 5 else None
        if got.image_sizes != seen:
            yield f"the images' sizes are {got.image_sizes}, not {seen}"
        groups = len({*sizes[:shown]}) + (shown < 5)
        if len(library.inputs) != groups:
            yield f"{shown} images are {len(library.inputs)} groups, not {groups}"
        prompts = sum(len(one.tokens) for one in some)
        yield from _counts_off(got.stats, prompts, sum(n for _, n in want), library)


def _counts_off(stats: Any, prompts: int, given: int, library: Library) -> Iterator[str]:
    """The clock ticks when it is read: around each piece of a prompt, and around each group."""
    if (stats.prompt_tokens, stats.generation_tokens) != (prompts, given):
        yield f"counted are {stats}, not {prompts} and {given}"
    times = stats.prompt_time, stats.generation_time
    speeds = stats.prompt_tps * times[0], stats.generation_tps * times[1]
    calls = [call for call in library.model.language_model.calls if call.options]
    pieces = sum(bool({"n_to_process", "logits_to_keep"} & set(call.options)) for call in calls)
    ticks = pieces, pieces + len(library.inputs)
    if times != ticks or not np.allclose(speeds, (prompts, given), rtol=0.01):
        yield f"the speed is {stats}"
    if not 0 < stats.peak_memory < 100:
        yield f"the peak of memory is {stats.peak_memory}"


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _asked() -> Iterator[str]:
    """The templates and inputs requested for images, audio and video."""
    some = _rows(3, 3)
    for images, audios, videos in itertools.product(
        (0, 1, 2), (None, ["a"]), (None, ["v"], ["v", "w"])
    ):
        library = Library([one.tokens for one in some])
        shown = [_image(0, 4, 4) for _ in range(images)] or None
        more: dict[str, Any] = {"fps": [2, 3] if images else 4, "max_frames": 7} if videos else {}
        with library.instead():
            got = ar.batch_generate(
                library.model,
                library.processor,
                shown,
                audios,
                ["0", "1", "2"],
                3,
                videos=videos,
                resize_shape=[9],
                **more,
            )
        if len(got.texts) != 3 or None in got.texts:
            yield f"the answers are {got.texts}"
        fps = more.get("fps", 1)
        asked = [
            {
                "num_images": int(n < images),
                "num_audios": int(n < len(audios or ())),
                "video": (videos or [])[n] if n < len(videos or ()) else None,
                "fps": fps if isinstance(fps, int) else fps[n] if n < len(videos or ()) else 1,
            }
            for n in range(3)
        ]
        said = dict(library.templates)
        if said != {str(n): one for n, one in enumerate(asked)}:
            yield f"{images} images, {audios}, {videos}: templates are asked for {said}"
        for given in library.inputs:
            want = {
                "audio": audios,
                "videos": videos,
                "image_token_index": 3,
                "resize_shape": (9, 9),
                "add_special_tokens": "by stub",
                "fps": fps,
                "pad_to_uniform_size": False,
                **({"max_frames": 7} if videos else {}),
            }
            del given["prompts"], given["images"]
            if given != want:
                yield f"{images} images, {audios}, {videos}: inputs are asked for with {given}"
    yield from _refused()


def _refused() -> Iterator[str]:
    """More media than prompts, or several pieces of audio where one is taken, are refused."""
    library = Library([[1, 2], [3]])
    several = [_image(0, 4, 4)] * 3
    with library.instead():
        for given in (
            {"images": several, "audios": ["a"]},
            {"audios": ["a"] * 3},
            {"videos": ["v"] * 3},
            {"audios": ["a", "b"]},
        ):
            try:
                ar.batch_generate(library.model, library.processor, prompts=["0", "1"], **given)
            except ValueError as error:
                if not any(word in str(error) for word in ("Received 3", "batched audio")):
                    yield f"{given} is refused with {error}"
                continue
            yield f"{given} is taken"
        library.processor.supports_multiple_audio = True
        got = ar.batch_generate(
            library.model, library.processor, prompts=["0", "1"], audios=["a", "b"]
        )
        if len(got.texts) != 2:
            yield "several pieces of audio are not taken where they may be"


def _sizes() -> Iterator[str]:
    """A single number for the size means both sides."""
    cases = ((None, None), ([4], (4, 4)), ((4, 6), (4, 6)), ([6, 4], (6, 4)))
    for given, want in cases:
        if ar.normalize_resize_shape(given) != want:
            yield f"{given} is {ar.normalize_resize_shape(given)}"
    for wrong in ([], [1, 2, 3], ["4"], [4.0], [True, 4], "4", b"4", [4, None]):
        try:
            ar.normalize_resize_shape(wrong)
        except ValueError as error:
            if "resize_shape" not in str(error):
                yield f"{wrong!r} is refused with {error}"
            continue
        yield f"{wrong!r} is taken"
