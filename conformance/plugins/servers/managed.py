"""Servers of a library: what they are asked, and what their answers must be."""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from conformance.core.accepted_fields import COMMAND_LINE, LeftOut, Passed, Recorder
from conformance.core.engine import Submission
from conformance.core.engine_options import TWIN, EngineOptions
from conformance.core.errors import Unsupported
from conformance.core.numerics import FACTOR
from conformance.core.origin import Origin
from conformance.core.phases import ServedStep
from conformance.core.schedule import Asked, Request, Schedule, own_limit, own_sampler
from conformance.core.trace import Claim, FinishReason, StepOutput
from conformance.plugins.servers.answers import CALLED, Answer
from conformance.plugins.servers.asking import Question, Tokens
from conformance.plugins.servers.claims import (
    about_drafts,
    about_end_tokens,
    about_ending,
    about_found,
    about_kept,
    about_limits,
    about_lists,
    about_maker,
    about_right_drafts,
    about_swap,
    at_limit,
    right_text,
)
from conformance.plugins.servers.endpoints import ending_of
from conformance.plugins.servers.entries import USUAL_NOISE, about_top
from conformance.plugins.servers.fields import question, sampled
from conformance.plugins.servers.launched import LaunchedEngine, arguments_of
from conformance.plugins.servers.planting import Steps, drafted, kept, weighed
from conformance.plugins.servers.process import (
    ManagedServer,
)
from conformance.plugins.servers.served_engine import only_the_server
from conformance.plugins.servers.spelling import Right, Spelling
from conformance.plugins.servers.tool_answers import Marked
from conformance.plugins.servers.words import (
    MARKERS,
    exchanged,
    text_of,
    tokens_of,
    whole_text,
    words_of,
)
from conformance.scenarios.marker_styles import STYLES
from conformance.scenarios.pieces import PieceKind, bytes_of


class ManagedEngine(LaunchedEngine):
    """A library's own server, whose model and tokenizer are known."""

    # In the API, the number of other tokens to report; in a chat, true or false.
    completion_logprobs: ClassVar[int] = 1

    # The model of a chat or, if the server has none, what a request is.
    request_model: ClassVar[str] = "request"
    # Those of its other endpoints.
    endpoint_models: ClassVar[Mapping[str, str]] = {}

    # Whether an option limits how many prompts are computed in one pass.
    limits_prompts: ClassVar[bool] = False
    # Tokens beside which a server lists logprobs at each step, as far as it is asked to.
    most_top: ClassVar[int] = 10
    # Tokens that a draft model drafts at once, where the server has one.
    drafts: ClassVar[int] = 0
    # A line of the log about a prompt in prefill: its tokens so far, and all of them.
    progress: ClassVar[re.Pattern[str]] = re.compile(r"(?!)")

    def __init__(self, model: Any, options: EngineOptions) -> None:
        # By request, whether the token that ended its answer counts, as 0 or 1.
        self._ends_counted: dict[str, int] = {}
        self._steps: Steps | None = None
        self._noted: list[ServedStep] = []
        # All of them, and how many there were when each request was sent.
        self._worked: list[ServedStep] = []
        self._worked_before: dict[str, int] = {}
        self._someone_left = False
        self._rights: dict[str, Right] = {}
        # By the names of models: the ids whose words are exchanged in their tokenizers.
        self._others: dict[str, Mapping[int, int]] = {}
        # Bytes of arrays before the first step, and their increase once all requests have ended.
        self._at_first: int | None = None
        self._left_over: int | None = None
        super().__init__(model, options)

    @classmethod
    def alone(cls, model: Any, request: Request, options: EngineOptions) -> tuple[int, ...] | None:
        """See ``Engine.alone``; other models' single streams are known too."""
        origin: Origin = model
        if request.asked is not None and request.asked.family:
            return cls.of_family(origin, request.asked.family).alone(request, options)
        if request.asked is not None and request.asked.other:
            if origin.other is None:
                raise Unsupported("there is no other model: not supported")
            return origin.other(origin.seed + request.asked.other).alone(request, options)
        return super().alone(model, request, options)

    @classmethod
    def passed(cls, model: Any, schedule: Schedule) -> Sequence[Passed]:
        """See ``Engine.passed``: what would be asked of a server that is not started."""
        accepted = cls.accepted()
        with tempfile.TemporaryDirectory(prefix="conformance-unstarted-") as name:
            recorder = Recorder(folder=name)
            engine = cls.__new__(cls)
            engine._given, engine._options, engine._others = model, schedule.options, {}
            engine._answers = {}
            engine._server = _Unstarted(Path(name))
            if engine._options.markers:
                engine._of_words().mkdir()
            added = arguments_of(engine.added(Path(name)))
            place = engine.place(Path(name), 0)
            flags = dict(_options_of([*place, *engine.flags(), *added]))
            for option in dict.fromkeys((*accepted[COMMAND_LINE], *flags)):
                recorder.add(COMMAND_LINE, option, flags.get(option, LeftOut.LEFT_OUT))
            for recorder.arrival, arrival in enumerate(schedule.arrivals):
                for request in arrival.requests:
                    _make_folders(Path(name), request)
                    with contextlib.suppress(Unsupported):
                        asked = engine.ask(request)
                        place = cls.endpoint_models.get(asked.endpoint, cls.request_model)
                        recorder.body(place, accepted[place], asked.sent)
        return recorder.passed

    def tokens(self, answer: Answer) -> Tokens:
        """See ``ServedEngine.tokens``: the words, with logprobs where each has one."""
        words = self._options.words
        if words:
            text = whole_text(answer.parts, MARKERS)
            return [(token, None) for token in tokens_of(text, words)]
        found = tokens_of(answer.text)
        logprobs = [entry.get("logprob") for entry in answer.entries]
        if len(logprobs) < len(found):
            logprobs = [None] * len(found)
        return list(zip(found, logprobs, strict=False))

    def connect(self) -> str:
        """See ``LaunchedEngine.connect``."""
        url = super().connect()
        self._steps = Steps(self._server.folder) if self._options.counted else None
        return url

    def step(self) -> StepOutput:
        """See ``ServedEngine.step``; after an exception the server is replaced."""
        try:
            output = super().step()
        except BaseException:
            self._broken = True
            raise
        if self._steps is None:
            return output
        self._note()
        noted, self._noted = tuple(self._noted), []
        return replace(output, served=noted, left_over=self._left_over)

    def prefilled(self, waiting: Sequence[str]) -> Mapping[str, int] | None:
        """See ``ServedEngine.prefilled``: by the log, for prompts of several pieces.

        The log does not name requests, so of prompts of equal length none is known.
        """
        lengths = Counter(len(self._requests[name].prompt) for name in waiting)
        cut = {
            length: name
            for name in waiting
            if lengths[length := len(self._requests[name].prompt)] == 1
            and length > self._options.prefill_step_size
        }
        if not cut:
            return None
        found = self.progress.findall(self._server.log()[self._log_at :])
        done = {cut[int(of)]: int(so_far) for so_far, of in found if int(of) in cut}
        return {n: so_far for n, so_far in done.items() if so_far < len(self._requests[n].prompt)}

    def remove(self, request_ids: Sequence[str]) -> None:
        """See ``ServedEngine.remove``; work until the removal counts as wanted."""
        self._note()
        self._someone_left = True
        super().remove(request_ids)

    def insert(self, submissions: Sequence[Submission]) -> None:
        """See ``ServedEngine.insert``."""
        self._note()
        done = len(self._worked)
        self._worked_before |= {s.request.request_id: done for s in submissions}
        super().insert(submissions)

    def look_after(self) -> Iterator[Claim]:
        """See ``ServedEngine.look_after``; the look's own request is not counted."""
        self._note()
        if self._steps is not None:
            yield from about_limits(self._worked, self._options, prompts=self.limits_prompts)
            if (caching := self._options.prefix_caching) is not None:
                found = kept(self._server.folder)
                yield from about_kept(found, caching.snapshots, self.kept_bytes())
                yield from about_found(self._found_again())
            if self._options.draft_model:
                found_drafts = drafted(self._server.folder)
                yield from about_drafts(found_drafts, len(self._requests), self.drafts)
            if self._options.draft_model == TWIN:
                limits = [request.max_tokens for request in self._requests.values()]
                yield from about_right_drafts(found_drafts, max(limits), self.drafts)
            yield from self._swaps()
        yield from about_end_tokens(self._ends_counted)
        if self._options.listed:
            yield from about_lists(self.url, self.health, self.model_name())
        yield from super().look_after()
        if self._steps is not None and (own := self._steps.new()) and self._at_first is not None:
            self._left_over = own[0].nbytes - self._at_first

    def left_behind(self) -> Mapping[str, int] | None:
        """See ``Engine.left_behind``: in the server's process, if that is counted."""
        return weighed(self._server.folder) if self._options.counted else None

    def _note(self) -> None:
        if self._steps is None:
            return
        found = self._steps.new(left=self._someone_left)
        if found and self._at_first is None:
            self._at_first = found[0].nbytes
        self._noted += found
        self._worked += found

    def _swaps(self) -> Iterator[Claim]:
        """Claims about the memory in use when a model answers again, where others did meanwhile."""
        first: dict[tuple[str, int, int], tuple[str, int]] = {}
        asked = {name: self._requests[name].asked or Asked() for name in self._worked_before}
        models = {name: (of.family, of.other, of.adapter) for name, of in asked.items()}
        for name, at in self._worked_before.items():
            if len(set(models.values())) < 2 or at >= len(self._worked):
                continue
            found = self._worked[at].nbytes
            if models[name] in first:
                yield about_swap(*first[models[name]], found)
            else:
                first[models[name]] = (name, found)

    def _found_again(self) -> list[tuple[str, int, int]]:
        """Requests with the prompt of one of the two before: its kept tokens, and the most."""
        asked = [self._requests[name] for name in self._answers]
        again = [
            request.request_id
            for at, request in enumerate(asked)
            if request.prompt in {before.prompt for before in asked[max(0, at - 2) : at]}
        ]
        usages = (self._answers[name].usage.get("prompt_tokens_details") or {} for name in again)
        counts = [int(usage.get("cached_tokens") or 0) for usage in usages]
        return [(name, own, max(counts)) for name, own in zip(again, counts, strict=True)]

    def kept_bytes(self) -> int | None:
        """The server's limit of bytes for kept prompts; ``None`` if it has none."""
        return None

    def question(self, request: Request, *, streamed: bool) -> Question:
        """See ``ServedEngine.question``: the prompt's words, and all logprobs the server has."""
        asked = request.asked
        name = self._named(asked)
        logprobs = True if asked is None or asked.chat else self.completion_logprobs
        # What ends any answer is in the checkpoint's files.
        own = tuple(stop for stop in request.stop if stop not in self._options.stop)
        given = msgspec.structs.replace(self._new_of(request), stop=own)
        others = self._exchanged(request)

        def text(tokens: Sequence[int]) -> str:
            return self.text([others.get(token, token) for token in tokens])

        made = question(given, name, text, streamed=streamed, logprobs=logprobs)
        if asked is not None and asked.follows and asked.follows in self._answers:
            (made.body["previous_response_id"],) = self._answers[asked.follows].ids
        for field in self._left_out(request):
            del made.body[field]
        return made

    def _new_of(self, request: Request) -> Request:
        """The request with what the server does not remember of its prompt."""
        asked = request.asked
        if asked is None or not asked.follows or asked.follows not in self._answers:
            return request
        before = self._requests[asked.follows]
        known = len(before.prompt) + len(self._tokens(before))
        return msgspec.structs.replace(request, prompt=request.prompt[known:])

    def _exchanged(self, request: Request) -> Mapping[int, int]:
        """For the ids whose words are exchanged in the tokenizer of a request's model, the others.

        Empty if that is the server's own model.
        """
        asked = request.asked
        if asked is None or not (asked.other or asked.family):
            return {}
        name = self._named(asked)
        if name not in self._others:
            self._others[name] = exchanged(Path(name))
        return self._others[name]

    def _left_out(self, request: Request) -> Iterator[str]:
        """The fields that a request leaves to the server, which was started with their values."""
        if request.sampler is not None and own_sampler(request, self._options) is None:
            yield from sampled(request.sampler)
        if own_limit(request, self._options) is None:
            yield "max_tokens"

    def spelling(self) -> Spelling:
        """What reads the text of the server's checkpoint as the library's single stream does."""
        raise Unsupported("the server's tokens are words: not supported")

    def read(self, request: Request, answer: Answer) -> Tokens:
        """See ``ServedEngine.read``; by the single stream if tokens are pieces of text."""
        if self._options.markers:
            return self._marked.read(self._tokens(request), answer)
        if not self._options.pieces:
            others = self._exchanged(request)
            found = super().read(request, answer)
            return [(others.get(token, token), said) for token, said in found]
        return self._spelling.read(self._right(request), answer)

    def whole(self, request: Request, found: Tokens, answer: Answer) -> tuple[Tokens, FinishReason]:
        """See ``ServedEngine.whole``."""
        if self._options.markers:
            right_tokens, own = self._tokens(request), [token for token, _ in found]
            missing = right_tokens[len(own) :] if own == [*right_tokens[: len(own)]] else ()
            ended = len(missing) <= self._marked.ending(request, right_tokens)
            left_out = ((token, None) for token in missing) if ended else ()
            return [*found, *left_out], FinishReason.STOP
        right = self._right(request) if self._options.pieces else None
        if right is None:
            # What a server counts is for claims about its counts to say.
            if ending := self._ended_by(request, [token for token, _ in found]):
                return [*found, *((token, None) for token in ending)], FinishReason.STOP
            return super().whole(request, found, answer)
        own = [token for token, _ in found]
        ended = answer.text in right.texts and own == list(right.tokens[: len(own)])
        missing = right.tokens[len(own) :] if ended else ()
        return [*found, *((token, None) for token in missing)], FinishReason.STOP

    def _ended_by(self, request: Request, said: Sequence[int]) -> tuple[int, ...]:
        """What ends an answer that has these tokens in its text; empty if they are not all."""
        if not request.stop or request.random or only_the_server(request):
            return ()
        right = tuple(self._tokens(request))
        ending = right[len(said) :]
        return ending if ending in request.stop and right[: len(said)] == tuple(said) else ()

    def words(self, request: Request, answer: Answer) -> list[str]:
        """See ``ServedEngine.words``."""
        if self._options.markers:
            return self._marked.words(self._tokens(request))
        if not self._options.pieces:
            return self.split(answer.text)
        return [self._spelling.word(token) for token in self._right(request).tokens]

    def reason(self, request: Request, answer: Answer) -> FinishReason | None:
        """See ``ServedEngine.reason``; after a call it does not say how the answer ended."""
        if self._options.markers and answer.reason == CALLED:
            ended = self._marked.ending(request, self._tokens(request))
            return FinishReason.STOP if ended else FinishReason.LENGTH
        return super().reason(request, answer)

    def _stop_reason(self, request: Request, answer: Answer) -> Claim:
        """Claim that another endpoint says by its own words what ended the answer."""
        tokens = tuple(self._tokens(request))
        ending = [stop for stop in request.stop if tokens[-len(stop) :] == stop]
        said = {stop: self.text(stop) for stop in ending if stop not in self._options.stop}
        assert request.asked is not None
        endpoint, stop = request.asked.endpoint, next(iter(said.values()), "")
        right = [ending_of(endpoint, bool(ending), stop)]
        if answer.calls:  # both are true of an answer that the limit cut after a call
            right = [*right, ending_of(endpoint, True, stop, called=True)][bool(ending) :]
        return Claim("what ended an answer", answer.stop, " or ".join(right), answer.stop in right)

    @functools.cached_property
    def _marked(self) -> Marked:
        ends = [token for (token,) in self._options.stop]
        return Marked(STYLES[self._options.markers], self._options.words, ends)

    def about_text(self, request: Request, answer: Answer) -> Iterator[Claim]:
        """See ``ServedEngine.about_text``."""
        if not self._options.words:  # where tokens have other texts, servers count some otherwise
            yield from at_limit(request, answer)
        if self._options.markers:
            yield from self._marked.about(request, self._tokens(request), answer)
        if request.asked is not None and request.asked.endpoint:
            yield self._stop_reason(request, answer)
        others = [other for name, other in self._answers.items() if name != request.request_id]
        yield from about_maker(request, answer, others, self._model_asked(request))
        if not (self._options.markers or self._options.pieces):
            yield from self._about_counts(request, answer)
            yield from self._about_top(request, answer)
        if self._options.pieces:
            yield right_text(request, answer.text, self._right(request).texts)

    def _model_asked(self, request: Request) -> str:
        """The model that a request names."""
        named = request.asked.fields.get("model") if request.asked is not None else None
        return str(named or self._named(request.asked))

    def _about_counts(self, request: Request, answer: Answer) -> Iterator[Claim]:
        """Claims about the counts of an answer that something ended."""
        if not answer.usage or answer.reason != FinishReason.STOP:
            return
        if ending := self._ended_by(request, [token for token, _ in self.read(request, answer)]):
            right = self._tokens(request)
            yield about_ending(request, answer, right, len(ending))
            if ending in self._options.stop:
                said = answer.usage.get("completion_tokens")
                self._ends_counted[request.request_id] = int(said == len(right))

    def _about_top(self, request: Request, answer: Answer) -> Iterator[Claim]:
        """Claims about the likeliest tokens, as far as the answer is the single stream's."""
        fields = request.asked.fields if request.asked is not None else {}
        plain = not (request.processors or request.sampler or only_the_server(request))
        if "top_logprobs" not in fields or not plain or self._origin.logprobs is None:
            return
        right = self._tokens(request)
        listed = [
            [(self.token_of(top), float(top["logprob"])) for top in entry.get("top_logprobs") or ()]
            for entry in answer.entries
        ]
        own = [self.token_of(entry) for entry in answer.entries]
        if all(listed) and own == [*right[: len(own)]]:  # of other answers, the tokens are wrong
            table = self._origin.logprobs(request, self._options)
            most, nats = int(fields["top_logprobs"]), FACTOR * USUAL_NOISE[self._origin.dtype]
            yield from about_top(request, listed, table, min(most, self.most_top), nats)

    def token_of(self, entry: Mapping[str, Any]) -> int:
        """The token of an entry of logprobs, or of one of its likeliest, by its word."""
        (token,) = tokens_of(str(entry["token"]), self.special())
        return token

    def special(self) -> Sequence[tuple[str, int]]:
        """Words other than those of ``text_of``, with their tokens."""
        return self._options.words

    def split(self, text: str) -> list[str]:
        """The words of a text, between which some tokenizers have no blank."""
        return words_of(text, (word.strip() for word, _ in self.special()))

    @functools.cached_property
    def _spelling(self) -> Spelling:
        return self.spelling().of(self._options.pieces, self._options.words)

    def _right(self, request: Request) -> Right:
        """The right answer to a request whose tokens are pieces of text."""
        if request.request_id not in self._rights:
            tokens = self._tokens(request)
            strings = self.question(request, streamed=False).body.get("stop") or ()
            ends = [token for (token,) in self._options.stop]
            self._rights[request.request_id] = self._spelling.right(tokens, ends, strings)
        return self._rights[request.request_id]

    def _tokens(self, request: Request) -> Sequence[int]:
        """The tokens of the single stream."""
        assert self._origin.alone is not None
        return self._origin.alone(request, self._options)

    def text(self, tokens: Sequence[int]) -> str:
        """The words of these tokens."""
        special = {token: text for text, token in self._options.words}
        if kind := self._options.pieces:
            said = bytes_of(kind, [special[token] for token in tokens]).decode(errors="replace")
            return said.removeprefix(" ") if kind == PieceKind.BYTE_FALLBACK else said
        # Parts of markers, reasoning and calls are joined as they are.
        between = "" if self._options.markers and special.keys() >= set(tokens) else " "
        return between.join(special.get(token) or text_of((token,)) for token in tokens)


class _Unstarted(ManagedServer):
    """Stands for a server that would be started in this folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder


def _options_of(command: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The options of a command with their values; one without a value has its name."""
    for flag, value in itertools.zip_longest(command, command[1:], fillvalue="--"):
        if flag.startswith("--"):
            yield flag, flag if value.startswith("--") else value


def _make_folders(folder: Path, request: Request) -> None:
    """Make the folders of what a request wants loaded, which are then not written."""
    asked = request.asked
    numbers = {"adapter": asked.adapter, "other": asked.other} if asked is not None else {}
    for name, number in numbers.items():
        if number:
            (folder / f"{name}{number}").mkdir(exist_ok=True)
