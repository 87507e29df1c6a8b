"""Which of mlx-vlm's shared code a model runs: known defects are looked up by it.

Much of this depends on the arguments that a model passes to the batch generator besides the tokens,
so a few prompts are made and passed through the model once.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx

from conformance.backend.code_traits import filled, parts
from conformance.core.schedule import Media, Request
from conformance.plugins.mlx_vlm import inputs
from conformance.plugins.mlx_vlm.compat import part
from conformance.plugins.mlx_vlm.model import LoadedModel

Given = dict[str, Any]
"""The keyword arguments of a prompt for ``BatchGenerator.insert``."""

_EMBEDDINGS = "inputs_embeds"


def code_traits(model: LoadedModel) -> frozenset[str]:
    """All traits found in the model; a look-up that raises is left out."""
    kinds = [kind for kind in model.family.facts.modalities if kind != "text"]
    looks: list[Callable[[LoadedModel], Iterator[str]]] = [_call, _pieces, _processor, _caches]
    looks += [functools.partial(_media, kind=kind) for kind in kinds]
    found = set(parts(model.language_model, "mlx_vlm"))
    for look in looks:
        try:
            found.update(look(model))
        except Exception:  # noqa: BLE001 - whatever the library raises, the model has its verdict
            continue
        finally:
            model.fresh()
    return frozenset(found)


def _call(model: LoadedModel) -> Iterator[str]:
    """``argument:cross_attention_states``: arguments that the decoder takes by name."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    found = inspect.signature(type(model.language_model).__call__).parameters.items()
    yield from (f"argument:{name}" for name, one in found if one.kind in named and name != "self")


def _pieces(model: LoadedModel) -> Iterator[str]:
    """``pieces:refused`` by the decoder's call; ``pieces:forbidden`` only by the whole model.

    The batch generator has only the decoder, which in the second case forbids nothing.
    """
    if not model.takes_pieces:
        yield "pieces:refused"
    if _has_policy(model.model) and not _has_policy(model.language_model):
        yield "pieces:forbidden"


def _has_policy(module: Any) -> bool:
    forbids = getattr(module, "no_chunked_prefill", False)
    return bool(forbids) or callable(getattr(module, "chunked_prefill_policy", None))


def _processor(model: LoadedModel) -> Iterator[str]:
    for base in type(model.processor).__mro__:
        if base.__module__.startswith("mlx_vlm."):
            yield f"processor:{base.__name__}"


def _caches(model: LoadedModel) -> Iterator[str]:
    """Traits of the caches after a text, passed to the decoder as embeddings, as in a batch."""
    cache, request = model.cache(), Request("text", _text(model, 7), 1)
    _decoded(model, request, inputs.embed(model, inputs.inputs_of(model, request)), cache)
    yield from filled(cache)


def _media(model: LoadedModel, *, kind: str) -> Iterator[str]:
    """Inputs of prompts with media that the batch generator cannot join correctly.

    ``longer:image``: more embeddings than tokens. ``listed:embeddings``, ``listed:pixels``: inputs
    that are no arrays. ``uneven:image``: arrays whose shapes depend on the image's size or the
    prompt's length. ``partial:image``: arrays with an entry for each token that the decoder reads,
    and that texts lack.
    """
    sizes = model.family.facts.sizes[kind]
    one, given, made = _prompt(model, kind, sizes[0], 3)
    longer, other = _prompt(model, kind, sizes[0], 9), _prompt(model, kind, sizes[-1], 3)
    if given[_EMBEDDINGS].shape[1] != len(one.prompt):
        yield f"longer:{kind}"
    of_model = [value for name, value in given.items() if name not in made.extra]
    if not all(isinstance(value, mx.array) for value in of_model):
        yield "listed:embeddings"
    if isinstance(made.pixel_values, list):
        yield "listed:pixels"
    if not all(_go_together((one, given), pair[:2]) for pair in (longer, other)):
        yield f"uneven:{kind}"
    if any(_is_read(model, kind, sizes[0], name) for name in _partial(model, one, given)):
        yield f"partial:{kind}"


def _prompt(
    model: LoadedModel, kind: str, size: tuple[int, ...], after: int
) -> tuple[Request, dict[str, Any], inputs.Inputs]:
    written: list[inputs.Part] = [_text(model, 3), Media(kind, size), _text(model, after)]
    prompt, media = inputs.compose(model, written)
    request = Request(kind, prompt, 1, media=media)
    made = inputs.inputs_of(model, request)
    return request, inputs.embed(model.fresh(), made), made


def _go_together(*prompts: tuple[Request, Given]) -> bool:
    """Whether the batch generator can prefill the prompts together, apart from embeddings."""
    given = [g | {_EMBEDDINGS: mx.zeros((1, len(r.prompt), 1))} for r, g in prompts]
    try:
        part("generate.ar")._merge_prefill_prompt_kwargs(
            given, [list(r.prompt) for r, _ in prompts]
        )
    except ValueError:
        return False
    return True


def _text(model: LoadedModel, length: int) -> tuple[int, ...]:
    low, high = model.family.tokens
    return tuple(low + 7 * place % (high - low) for place in range(length))


def _partial(model: LoadedModel, request: Request, given: Given) -> Iterator[str]:
    text = Request("text", _text(model, 7), 1)
    always = inputs.embed(model.fresh(), inputs.inputs_of(model, text))
    for name, value in given.items():
        aligned = isinstance(value, mx.array) and len(request.prompt) in value.shape
        if aligned and name not in always:
            yield name


def _is_read(model: LoadedModel, kind: str, size: tuple[int, ...], name: str) -> bool:
    """Whether the decoder's output changes or fails without the argument."""
    cache = model.cache()  # resets the state that making the prompt left on the model
    request, given, _ = _prompt(model, kind, size, 3)
    right = _decoded(model, request, given, cache)
    cache = model.cache()
    request, given, _ = _prompt(model, kind, size, 3)
    del given[name]
    try:
        return not mx.array_equal(_decoded(model, request, given, cache), right).item()
    except Exception:  # noqa: BLE001 - it cannot do without
        return True


def _decoded(model: LoadedModel, request: Request, given: Given, cache: list[Any]) -> mx.array:
    more = {name: value for name, value in given.items() if name != _EMBEDDINGS}
    ids = mx.array(request.prompt, mx.int32)[None]
    length = given[_EMBEDDINGS].shape[1]
    output = model.language_model(
        ids, cache=cache, inputs_embeds=given[_EMBEDDINGS], n_to_process=length, **more
    )
    logits: mx.array = output.logits
    return logits
