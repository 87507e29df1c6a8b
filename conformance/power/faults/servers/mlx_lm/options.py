"""Defects of a request's own options: which row gets them, and which are forgotten."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import mlx.core as mx
from mlx_lm import server
from mlx_lm.generate import BatchGenerator, GenerationBatch, StopSequences

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, before, together, wrap
from conformance.plugins.servers.planting import served_fault

_fault = partial(
    served_fault,
    engine="mlx_lm_server",
    fault_class="server options",
    source="issue trackers: options that servers take and do not use",
    kills=("served_traffic/options",),
)


def _sampling(hits: Hits, change: Callable[[Any], None]) -> Patch:
    """The sampler of a request is made of its changed arguments."""

    def make(right: Right, args: Any, tokenizer: Any) -> Any:
        before = dict(vars(args.sampling))
        change(args.sampling)
        hits.hit_if(vars(args.sampling) != before)
        return right(args, tokenizer)

    return wrap(server, "_make_sampler", make)


@_fault("S29.sampler-of-the-first-row")
def sampler_of_the_first_row(hits: Hits) -> Patch:
    """All rows of a generator are sampled as the first sampled request asked."""
    first: list[Any] = []

    def make(right: Right, args: Any, tokenizer: Any) -> Any:
        own = right(args, tokenizer)
        if args.sampling.temperature and not first:
            first.append(own)
        hits.hit_if(first and own is not first[0])
        return first[0] if first and args.sampling.temperature else own

    return wrap(server, "_make_sampler", make)


@_fault("S30.top-k-and-min-p-ignored")
def top_k_and_min_p_ignored(hits: Hits) -> Patch:
    """No sampler gets the top_k and the min_p of its request."""

    def change(sampling: Any) -> None:
        sampling.top_k, sampling.min_p = 0, 0.0

    return _sampling(hits, change)


@_fault("S31.temperature-ignored")
def temperature_ignored(hits: Hits) -> Patch:
    """All sampled requests are sampled at the temperature of 1."""

    def change(sampling: Any) -> None:
        sampling.temperature = 1.0 if sampling.temperature else 0.0

    return _sampling(hits, change)


@_fault("S32.biases-of-all")
def biases_of_all(hits: Hits) -> Patch:
    """The biases of requests are kept in one table, which is used for all."""
    table: dict[int, float] = {}

    def make(right: Right, args: Any) -> Any:
        table.update(args.logits.logit_bias or {})
        hits.hit_if(table != (args.logits.logit_bias or {}))
        args.logits.logit_bias = dict(table)
        return right(args)

    return wrap(server, "_make_logits_processors", make)


@_fault("S33.penalty-lost-beside-another")
def penalty_lost_beside_another(hits: Hits) -> Patch:
    """Of several logits processors of a request the last is left out."""

    def make(right: Right, args: Any) -> Any:
        found = right(args)
        hits.hit_if(len(found) > 1)
        return found[:-1] if len(found) > 1 else found

    return wrap(server, "_make_logits_processors", make)


@_fault("S72.history-of-a-penalty-ignored")
def history_of_a_penalty_ignored(hits: Hits) -> Patch:
    """All penalties count the default number of tokens, whatever their requests ask for."""

    def make(args: Any) -> None:
        for kind in ("repetition", "presence", "frequency"):
            name = f"{kind}_context_size"
            hits.hit_if(
                getattr(args.logits, f"{kind}_penalty") and getattr(args.logits, name) != 20
            )
            setattr(args.logits, name, 20)

    return before(server, "_make_logits_processors", make)


@_fault("S73.filter-lost-beside-another")
def filter_lost_beside_another(hits: Hits) -> Patch:
    """Of several filters of a sampler the last is left out."""

    def change(sampling: Any) -> None:
        off = {"top_p": 1.0, "min_p": 0.0, "xtc_probability": 0.0, "top_k": 0}
        given = [name for name, value in off.items() if getattr(sampling, name) != value]
        if len(given) > 1:
            setattr(sampling, given[-1], off[given[-1]])

    return _sampling(hits, change)


@_fault("S37.logprobs-of-the-first-request", kills=("served_traffic/some_logprobs",))
def logprobs_of_the_first_request(hits: Hits) -> Patch:
    """All answers of a batch have logprobs if the request that came first asks for them."""
    first: list[tuple[bool, int]] = []
    at_work: list[Any] = []

    def generate(
        right: Right, self: Any, request: Any, args: Any, *more: Any, **options: Any
    ) -> Any:
        own = (args.logprobs, args.top_logprobs)
        if not at_work:
            first[:] = [own]
        hits.hit_if(own != first[0])
        args.logprobs, args.top_logprobs = first[0]
        context, tokens = right(self, request, args, *more, **options)
        at_work.append(args)
        return context, until_its_end(tokens)

    def until_its_end(tokens: Iterator[Any]) -> Iterator[Any]:
        try:
            yield from tokens
        finally:
            at_work.pop()

    return wrap(server.ResponseGenerator, "generate", generate)


def _said(hits: Hits, change: Callable[[dict[str, Any]], None], *, streamed: bool) -> Patch:
    """Each piece of an answer is changed before it is sent, of streams or of whole answers."""

    def made(response: Any, handler: Any, *_: Any, **__: Any) -> Any:
        if handler.stream is streamed:
            before = copy.deepcopy(response)
            change(response["choices"][0])
            hits.hit_if(response != before)
        return response

    return after(server.APIHandler, "generate_response", made)


@_fault("S38.logprobs-dropped", kills=("served_traffic/own_logprobs",))
def logprobs_dropped(hits: Hits) -> Patch:
    """An answer in one piece has no logprobs, whatever its request asks for."""
    return _said(hits, lambda choice: choice.pop("logprobs", None), streamed=False)


@_fault("S38.logprobs-of-the-token-before", kills=("served_traffic/own_logprobs",))
def logprobs_of_the_token_before(hits: Hits) -> Patch:
    """Each token but the first has the logprob of the one before it."""

    def change(choice: dict[str, Any]) -> None:
        entries = (choice.get("logprobs") or {}).get("content") or []
        said = [entry["logprob"] for entry in entries if "logprob" in entry]
        for entry, logprob in zip(entries[1:], said, strict=False):
            entry["logprob"] = logprob

    return _said(hits, change, streamed=False)


@_fault("S38.logprobs-unasked", kills=("served_traffic/own_logprobs",))
def logprobs_unasked(hits: Hits) -> Patch:
    """Answers have logprobs whether or not their requests ask for them."""

    def generate(_: Any, __: Any, args: Any, *___: Any, **____: Any) -> None:
        hits.hit_if(not args.logprobs)
        args.logprobs = True

    return before(server.ResponseGenerator, "generate", generate)


@_fault("S34.first-stop-string-alone", kills=("served_traffic/ends",))
def first_stop_string_alone(hits: Hits) -> Patch:
    """Of several stop strings the first alone ends an answer."""

    def make(right: Right, self: Any, key: Any, tokenizer: Any, words: Any) -> Any:
        hits.hit_if(len(words) > 1)
        return right(self, key, tokenizer, list(words[:1]))

    return wrap(server.ResponseGenerator, "_make_state_machine", make)


@_fault("S35.first-end-token-alone", kills=("served_traffic/ends",))
def first_end_token_alone(hits: Hits) -> Patch:
    """Of several tokens that end an answer, the tokenizer's own alone does."""

    def make(right: Right, tokenizer: Any, words: Any) -> Any:
        own = {tokenizer.eos_token_id}
        hits.hit_if(tokenizer.eos_token_ids != own)
        tokenizer.eos_token_ids = own
        return right(tokenizer, words)

    return wrap(server, "make_stop_sequences", make)


@_fault("S36.limit-of-one-taken-for-none", kills=("served_traffic/ends",))
def limit_of_one_taken_for_none(hits: Hits) -> Patch:
    """An answer of one token gets a second one."""

    def insert(right: Right, self: Any, segments: Any, *args: Any, **options: Any) -> Any:
        hits.hit_if(options["max_tokens"] == [1])
        options["max_tokens"] = [max(2, most) for most in options["max_tokens"]]
        return right(self, segments, *args, **options)

    return wrap(BatchGenerator, "insert_segments", insert)


@_fault("S74.end-at-the-limit-said-to-be-cut", kills=("served_traffic/ends",))
def end_at_the_limit_said_to_be_cut(hits: Hits) -> Patch:
    """An answer whose last token that its limit allows ends it is said to have been cut."""

    def step(found: Any, *_: Any, **__: Any) -> Any:
        for response in found[1]:
            if response.finish_reason == "stop" and response.uid in full:
                hits.hit()
                response.finish_reason = "length"
        return found

    def note(self: Any) -> None:
        rows = zip(self.uids, self._num_tokens, self.max_tokens, strict=True)
        full.update(uid for uid, count, most in rows if count + 1 >= most)

    full: set[int] = set()
    return together(before(GenerationBatch, "next", note), after(BatchGenerator, "next", step))


@_fault("S75.stop-string-begun-once", kills=("served_traffic/ends",))
def stop_string_begun_once(hits: Hits) -> Patch:
    """After a part of a stop string that did not go on, it is looked for from its start again.

    What the part may have in common with the string's own begin is forgotten.
    """

    def forget(root: Any, node: Any) -> None:
        for key, child in node.items():
            if key not in {"__fail__", "__match__"}:
                hits.hit_if(child["__fail__"] is not root)
                child["__fail__"] = root
                forget(root, child)

    def made(_: Any, self: Any, *__: Any) -> None:
        forget(self._root, self._root)

    return after(StopSequences, "__init__", made)


@_fault("S76.limit-by-its-later-name-ignored", kills=("served_alone/limits",))
def limit_by_its_later_name_ignored(hits: Hits) -> Patch:
    """A request that has max_completion_tokens in place of max_tokens gets the default limit."""

    def check(self: Any) -> None:
        if "max_tokens" not in self.body:
            hits.hit_if("max_completion_tokens" in self.body)
            self.max_tokens = self.response_generator.cli_args.max_tokens

    return before(server.APIHandler, "validate_model_parameters", check)


def _of_another(hits: Hits, *, first: bool) -> Patch:
    """A sampled request is sampled as another one asked: the first, or the one before it."""
    temperatures: list[float] = []

    def change(sampling: Any) -> None:
        if not sampling.temperature:
            return
        temperatures.append(sampling.temperature)
        sampling.temperature = temperatures[0 if first else max(0, len(temperatures) - 2)]

    return _sampling(hits, change)


@_fault("S55.sampler-of-the-neighbour", kills=("served_draws/unlike",))
def sampler_of_the_neighbour(hits: Hits) -> Patch:
    """A row is sampled as the request asked that came before it."""
    return _of_another(hits, first=False)


@_fault("S56.temperature-of-the-first-request", kills=("served_draws/unlike",))
def temperature_of_the_first_request(hits: Hits) -> Patch:
    """All sampled rows have the temperature of the first sampled request."""
    return _of_another(hits, first=True)


@_fault("S57.equal-prompts-drawn-alike", kills=("served_draws/equal",))
def equal_prompts_drawn_alike(hits: Hits) -> Patch:
    """Each row's random numbers begin with one key: equal requests without a seed agree."""

    def make(right: Right, args: Any, tokenizer: Any) -> Any:
        own, steps = right(args, tokenizer), itertools.count()
        if not args.sampling.temperature or args.seed is not None:
            return own

        def sampler(logprobs: Any) -> Any:
            hits.hit()
            mx.random.seed(next(steps))
            return own(logprobs)

        return sampler

    return wrap(server, "_make_sampler", make)


@_fault("S58.seed-used-once", kills=("served_samplers",))
def seed_used_once(hits: Hits) -> Patch:
    """A seed counts for the request that sends it first: others with it go on from there."""
    seeds: set[int] = set()

    def serve(_: Any, request: Any, *__: Any) -> None:
        args = request[2]
        hits.hit_if(args.seed in seeds)
        if args.seed in seeds:
            args.seed = None
        elif args.seed is not None:
            seeds.add(args.seed)

    return before(server.ResponseGenerator, "_serve_single", serve)


@_fault("S120.stop-text-by-itself-ignored", kills=("served_stops",))
def stop_text_by_itself_ignored(hits: Hits) -> Patch:
    """A stop string that is no list ends nothing."""

    def handle(right: Right, self: Any, request: Any, stop_words: list[str]) -> None:
        alone = isinstance(self.body.get("stop"), str)
        hits.hit_if(alone)
        right(self, request, [] if alone else stop_words)

    return wrap(server.APIHandler, "handle_completion", handle)


@_fault("S121.logprobs-of-rows-before-the-end", kills=("served_traffic/own_logprobs",))
def logprobs_of_rows_before_the_end(hits: Hits) -> Patch:
    """When a row ends, the next logprobs of the rows are cut to their number, and not chosen."""

    def filtered(right: Right, self: Any, keep: list[int], *args: Any) -> None:
        following = list(self._next_logprobs)
        right(self, keep, *args)
        hits.hit_if(list(keep) != list(range(len(keep))))
        self._next_logprobs = following[: len(keep)]

    return wrap(GenerationBatch, "filter", filtered)


@_fault("S123.stop-string-begun-in-the-prompt", kills=("served_traffic/ends",))
def stop_string_begun_in_the_prompt(hits: Hits) -> Patch:
    """A stop string may begin with the last token of the prompt."""

    def made(right: Right, self: Any, model: Any, uids: Any, inputs: Any, *args: Any) -> None:
        last = inputs.tolist()
        right(self, model, uids, inputs, *args)
        for matcher, token in zip(self._matchers, last, strict=True):
            hits.hit_if(token in matcher._root)
            matcher.advance(token)

    return wrap(GenerationBatch, "__init__", made)


@_fault("S134.seed-by-its-last-bit", kills=("served_samplers",))
def seed_by_its_last_bit(hits: Hits) -> Patch:
    """Of a seed one bit is used: all even seeds draw the same tokens."""

    def serve(_: Any, request: Any, *__: Any) -> None:
        args = request[2]
        hits.hit_if(args.seed is not None and args.seed > 1)
        args.seed = None if args.seed is None else args.seed & 1

    return before(server.ResponseGenerator, "_serve_single", serve)


@_fault("S135.rewards-taken-for-none")
def rewards_taken_for_none(hits: Hits) -> Patch:
    """A penalty below 0, which makes tokens likelier, counts as none."""

    def make(args: Any) -> None:
        for kind in ("presence", "frequency"):
            penalty = getattr(args.logits, f"{kind}_penalty")
            hits.hit_if(penalty < 0)
            setattr(args.logits, f"{kind}_penalty", max(0.0, penalty))

    return before(server, "_make_logits_processors", make)


@_fault("S136.xtc-at-each-step")
def xtc_at_each_step(hits: Hits) -> Patch:
    """XTC excludes tokens at each step, however improbable it is to be."""

    def change(sampling: Any) -> None:
        sampling.xtc_probability = 1.0 if sampling.xtc_probability else 0.0

    return _sampling(hits, change)


@_fault("S136.threshold-of-xtc-ignored")
def threshold_of_xtc_ignored(hits: Hits) -> Patch:
    """XTC has its default threshold, whatever its request asks for."""

    def change(sampling: Any) -> None:
        sampling.xtc_threshold = 0.1

    return _sampling(hits, change)


@_fault("S137.fourth-stop-string-dropped", kills=("served_traffic/ends",))
def fourth_stop_string_dropped(hits: Hits) -> Patch:
    """Of the stop strings of a request the first three end an answer."""

    def make(right: Right, self: Any, key: Any, tokenizer: Any, words: Any) -> Any:
        hits.hit_if(len(words) > 3)
        return right(self, key, tokenizer, list(words[:3]))

    return wrap(server.ResponseGenerator, "_make_state_machine", make)


@_fault("S138.end-as-a-first-token-ignored", kills=("served_stops",))
def end_as_a_first_token_ignored(hits: Hits) -> Patch:
    """What ends an answer does not do so as its first token: the answer goes on."""

    def made(_: Any, self: Any, *__: Any, **___: Any) -> None:
        self._matchers = [_after_the_first(matcher) for matcher in self._matchers]

    def _after_the_first(matcher: Any) -> Any:
        right = matcher.advance

        def advance(token: int) -> bool:
            matcher.advance = right
            hits.hit_if(right(token))
            return False

        matcher.advance = advance
        return matcher

    return after(GenerationBatch, "__init__", made)


@_fault("S140.seed-of-32-bits", kills=("served_samplers",))
def seed_of_32_bits(hits: Hits) -> Patch:
    """Of a seed the last 32 bits are used."""

    def serve(_: Any, request: Any, *__: Any) -> None:
        args = request[2]
        hits.hit_if(args.seed is not None and args.seed >> 32)
        args.seed = None if args.seed is None else args.seed & 0xFFFFFFFF

    return before(server.ResponseGenerator, "_serve_single", serve)


@_fault("S141.stop-strings-by-their-words", kills=("served_traffic/ends",))
def stop_strings_by_their_words(hits: Hits) -> Patch:
    """What ends an answer is kept by the words of its stop strings, however they are divided."""
    first: dict[Any, Any] = {}

    def make(right: Right, self: Any, key: Any, tokenizer: Any, words: Any) -> Any:
        own = first.setdefault((key, " ".join(words)), words)
        hits.hit_if(own != words)
        return right(self, key, tokenizer, own)

    return wrap(server.ResponseGenerator, "_make_state_machine", make)


def _listed(hits: Hits, change: Callable[[list[Any]], list[Any]]) -> Patch:
    """The likeliest tokens beside a token are changed, from the likeliest one on."""

    def listed(found: Any, *_: Any) -> Any:
        ordered = sorted(found, key=lambda one: -one["logprob"])
        changed = change([dict(one) for one in ordered])
        hits.hit_if(changed != ordered)
        return tuple(changed)

    return after(server, "_format_top_logprobs", listed)


@_fault("S142.two-likeliest-tokens", kills=("served_traffic/logprobs",))
def two_likeliest_tokens(hits: Hits) -> Patch:
    """However many of the likeliest tokens a request asks for, it gets two."""
    return _listed(hits, lambda ordered: ordered[:2])


@_fault("S142.likeliest-tokens-too-unlikely", kills=("served_traffic/logprobs",))
def likeliest_tokens_too_unlikely(hits: Hits) -> Patch:
    """Of the likeliest tokens, all but the first have less than their logprobs."""

    def change(ordered: list[Any]) -> list[Any]:
        return [
            one | {"logprob": one["logprob"] - 0.5 * bool(at)} for at, one in enumerate(ordered)
        ]

    return _listed(hits, change)


def _signed(hits: Hits, **fields: str) -> Patch:
    """Each piece of an answer says this of itself."""

    def made(response: Any, *_: Any, **__: Any) -> Any:
        hits.hit_if({**response, **fields} != response)
        response.update(fields)
        return response

    handler = server.APIHandler
    names = ("generate_response", "completion_usage_response")
    return together(*(after(handler, name, made) for name in names))


@_fault("S143.answers-of-one-id", kills=("served_alone",))
def answers_of_one_id(hits: Hits) -> Patch:
    """All answers have one id."""
    return _signed(hits, id="chatcmpl-1")


@_fault("S144.answer-names-another-model", kills=("served_alone",))
def answer_names_another_model(hits: Hits) -> Patch:
    """An answer names the model by which the server calls its own, and not the one asked for."""
    return _signed(hits, model="default_model")
