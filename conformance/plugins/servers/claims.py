"""Claims that compare a server's reports with counts and measurements of the client."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

import httpx2

from conformance.core.engine_options import EngineOptions
from conformance.core.http_clients import client, get
from conformance.core.phases import ServedStep
from conformance.core.schedule import Asked, Request
from conformance.core.trace import Claim, FinishReason
from conformance.plugins.servers.answers import CALLED, Answer, PartKind
from conformance.plugins.servers.asking import Came, Question
from conformance.plugins.servers.endpoints import texts
from conformance.plugins.servers.fields import fits_schema
from conformance.plugins.servers.planting import Drafted, Kept
from conformance.plugins.servers.words import MARKERS, tokens_of, whole_text
from conformance.scenarios.served_clients import JOINED, RUNNING

# A server that keeps working for a client that left makes the next client wait for the whole
# answer. A server that notices may check only about twice a second: work until then is excused.
_PART, _LEAST = 0.5, 1000
_LASTING = 500  # tokens of an answer that others, for which there is room, do not wait for
_EXCUSED_SECONDS = 1.0
_STARVED = 0.9
_LIST_SECONDS = 60.0
_SEVERAL = 3  # answers that do not all end by themselves just at their limits
# Many requests may make a server's buffers grow once, but not with each request.
_MB = 2**20
_MEMORY_SHARE, _MEMORY_BYTES = 0.25, 96 * _MB
# A model that is kept takes as many bytes as it has weights; caches of a few tokens take fewer.
_MODEL_SHARE = 0.25


_TEXT_CAUSE = "tokens become text otherwise, or a stop string, a limit or another answer cuts it"


@dataclass(frozen=True)
class Left:
    """A client that left: its answer so far, and the number of pieces each request had then."""

    answer: Answer
    pieces: Mapping[str, int]


def about_answer(
    request: Request,
    answer: Answer,
    prompt_tokens: int | None,
    count: int | None,
    *,
    counted: bool = True,
) -> Iterator[Claim]:
    """Claims about an answer's token counts, its finish reason, and that it has one id.

    Args:
        prompt_tokens: the prompt's tokens; ``count``: the answer's. ``None`` if unknown.
        counted: whether the server counts tokens at all.
    """
    reasons = " or ".join(FinishReason)
    called = answer.calls or any(p.kind is PartKind.TOOL for p in answer.parts)
    holds = bool(answer.reason == CALLED and called) or answer.reason in set(FinishReason)
    yield Claim("finish_reason", str(answer.reason), reasons, holds)
    yield Claim("ids of one answer", str(len(answer.ids)), "1", len(answer.ids) == 1)
    if answer.problems:
        yield Claim("the events of an answer", answer.problems[0], "in order", holds=False)
    if not answer.usage and not (counted and _wanted(request)):
        return
    if not answer.usage:
        yield Claim("usage", "nothing", "counts of tokens", holds=False)
        return
    prompt, completion, total = (
        answer.usage.get(f"{name}_tokens") for name in ("prompt", "completion", "total")
    )
    if count is not None:
        # The text lacks the tokens that ended the answer; only some servers count them.
        holds = completion in {count, *(count + ending for ending in _endings(request, answer))}
        yield Claim("usage.completion_tokens", str(completion), str(count), holds)
    if prompt_tokens is not None:
        holds = prompt == prompt_tokens
        yield Claim("usage.prompt_tokens", str(prompt), str(prompt_tokens), holds)
    if prompt == 0 and request.prompt:
        yield Claim("usage.prompt_tokens", "0", "at least 1", holds=False)
    right = (prompt or 0) + (completion or 0)
    yield Claim("usage.total_tokens", str(total), str(right), total == right)


def about_maker(
    request: Request, answer: Answer, others: Iterable[Answer], model: str
) -> Iterator[Claim]:
    """Claims that an answer names the model that was asked, and that its id is no other one's.

    Args:
        others: the answers before it.
        model: the name by which the server was asked.
    """
    if not answer.models:  # not all clients pass on what a server sends
        return
    said = " and ".join(sorted(answer.models))
    yield Claim("the model of an answer", said, model, answer.models == {model})
    taken = answer.ids.intersection(*[{i for other in others for i in other.ids}])
    sentence = f"the answer to {request.request_id!r} has the id of another one: {taken}"
    cause = "ids are not made anew for each answer"
    yield Claim("answers with an id", "several", "one", not taken, cause, sentence)


def about_ending(request: Request, answer: Answer, right: Sequence[int], size: int) -> Claim:
    """Claim that an answer with the right text counts what ended it as a whole, or not at all.

    Args:
        right: the tokens of the single stream, the last ``size`` of which ended it.
    """
    said, allowed = answer.usage.get("completion_tokens"), (len(right) - size, len(right))
    sentence = f"the usage of {request.request_id!r} has {said} completion_tokens, of {len(right)}"
    what, cause = "usage.completion_tokens", "a token is counted twice, or not at all"
    expected = " or ".join(map(str, allowed))
    return Claim(what, str(said), expected, said in allowed, cause, sentence)


def about_end_tokens(counted: Mapping[str, int]) -> Iterator[Claim]:
    """Claim that the token which ended an answer is counted in all answers or in none.

    Args:
        counted: by request, whether it is, as 0 or 1.
    """
    names = [next((n for n, count in counted.items() if count == way), "") for way in (0, 1)]
    sentence = f"the token that ended it counts in the usage of {names[1]!r}, not of {names[0]!r}"
    cause = "streams and answers in one piece, or endpoints, count otherwise"
    what = "answers whose end counts"
    if counted:
        yield Claim(
            what, str(sum(counted.values())), "all or none", not all(names), cause, sentence
        )


def _wanted(request: Request) -> bool:
    """Whether token counts were asked for; an unstreamed answer always has them."""
    asked = request.asked or Asked()
    options = asked.fields.get("stream_options", {"include_usage": True})
    return not asked.streamed or bool(options.get("include_usage"))


def _endings(request: Request, answer: Answer) -> Iterable[int]:
    """The number of tokens that may have ended an answer: a stop sequence, or one end token."""
    if answer.reason not in {FinishReason.STOP, CALLED}:
        return ()
    return {len(sequence) for sequence in request.stop} or {1}


def waited_for(after: Answer, other: str, most: int) -> Iterator[Claim]:
    """Claim that a joining request does not wait for the end of an answer already at work.

    The wait is counted in tokens of that answer, so a busy machine changes nothing.

    Args:
        after: the answer to the joining request.
        other: the request whose answer of ``most`` tokens was at work.
    """
    rest = most - after.at_sending.get(other, 0)
    if rest < RUNNING:
        return
    count = after.at_first.get(other, 0) - after.at_sending.get(other, 0)
    yield Claim(JOINED, str(count), f"few of {rest}", holds=count < _STARVED * rest)


def same_text(streamed: Answer, again: Came) -> Iterator[Claim]:
    """Claim that a streamed answer has the same text as the unstreamed answer."""
    one, many = joined(again.answer), joined(streamed)
    holds = not again.error and one.strip() == many.strip()
    what, found = "the text of a stream", again.error or repr(_apart(one, many))
    said = repr(_apart(many, one))
    sentence = f"{what}, the answer to {again.name!r}, has {said}, and in one piece it has {found}"
    if again.error:
        sentence = f"in one piece, the answer to {again.name!r} fails: {again.error}"
    yield Claim(what, said, found, holds, _TEXT_CAUSE, sentence)


def right_text(request: Request, said: str, right: Sequence[str]) -> Claim:
    """Claim that an answer has one of the texts that its tokens may have."""
    what, found = "the text of an answer", repr(_apart(right[0], said))
    shown = repr(_apart(said, right[0]))
    sentence = f"{what}, that to {request.request_id!r}, has {shown}, and its tokens have {found}"
    return Claim(what, shown, found, said in right, _TEXT_CAUSE, sentence)


def no_answer(came: Came, why: str) -> Claim:
    """Report a right request that got an error in place of its answer, and ``why`` if known."""
    what, said = "the answer to a right request", f"{came.error}{why} for {came.name!r}"
    status, _, message = came.error.partition(": ")
    if not status.startswith("HTTP "):
        cause = "the server's work for this request failed, or its connection was lost"
        sentence = f"{what}, {came.name!r}: {came.error}{why}"
        return Claim(what, said, "one", False, cause, sentence, failed=True)
    sentence = f"the server answered {status} to a right request, {came.name!r}: {message}{why}"
    cause = "the server fails for this request, or refuses it, only beside others or always"
    return Claim(what, said, "an answer", False, cause, sentence, failed=True)


def at_limit(request: Request, answer: Answer, allowed: Collection[int] = ()) -> Iterator[Claim]:
    """Claim that an answer which is said to have reached its limit has, by the server's count.

    Args:
        allowed: numbers of tokens at which the server ends answers alone, too.
    """
    made, limit = answer.usage.get("completion_tokens"), request.max_tokens
    if made is None or answer.reason != FinishReason.LENGTH or made >= limit or made in allowed:
        return
    sentence = f"the answer to {request.request_id!r} ended after {made} of {limit} tokens, "
    yield Claim(
        "tokens of an answer that has reached its limit",
        str(made),
        str(limit),
        holds=False,
        cause="the server has a lower limit of its own, or counts another row's tokens",
        sentence=f"{sentence}as if by its limit",
    )


def limited(request: Request, answer: Answer, others: Sequence[Answer]) -> Iterator[Claim]:
    """Claim that not every answer with as many tokens as its limit is said to end by itself.

    One answer may end by itself there.

    Args:
        others: answers alone with as many tokens as their limits.
    """
    made = answer.usage.get("completion_tokens") or 0
    ended = all(other.reason == FinishReason.STOP for other in (answer, *others))
    if len(others) < _SEVERAL or not ended or request.stop or made < request.max_tokens:
        return
    sentence = (
        f"the answer to {request.request_id!r} has all of its {request.max_tokens} tokens and the "
        f"finish_reason 'stop', as each of {len(others)} answers alone that reached their limits"
    )
    cause = "the server does not distinguish its limit from an end of the answer"
    what, wanted = "the finish_reason at the limit", str(FinishReason.LENGTH)
    yield Claim(what, str(answer.reason), wanted, False, cause, sentence)


def right_reason(request: Request, answer: Answer, wanted: str | None) -> Claim:
    """Claim that an answer with the right text has the finish reason of that text."""
    name, said = request.request_id, answer.reason
    return Claim(
        "the finish_reason of the same text",
        str(said),
        str(wanted),
        said == wanted,
        cause="the reason is another row's, or not that of what ended the answer",
        sentence=f"the text of the answer to {name!r} is right, and its finish_reason {said!r}",
    )


def no_exception(said: str) -> Claim:
    """Claim that a server's log has no exception after valid requests."""
    what = "exceptions in the server's log"
    return Claim(what, said or "none", "none", holds=not said, failed=True)


def joined(answer: Answer) -> str:
    """The text of an answer or, if it has more than text, its parts, joined by kind."""
    if all(part.kind is PartKind.TEXT for part in answer.parts):
        return answer.text
    kinds = {k: "".join(p.text for p in answer.parts if p.kind is k).strip() for k in PartKind}
    if not answer.calls:
        return "; ".join(f"{kind}: {text}" for kind, text in kinds.items())
    calls = [f"{call.name}{call.arguments}".replace(" ", "") for call in answer.calls.values()]
    kinds[PartKind.TOOL] = " ".join(calls)
    return "; ".join(f"{kind}: {text}" for kind, text in kinds.items())


def _apart(text: str, other: str) -> str:
    """The beginning of the part of a text that differs from another text."""
    at = next((i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), None)
    return text[max(0, (min(len(text), len(other)) if at is None else at) - 8) :][:40]


def about_work(
    left: Mapping[str, Left], after: Answer, requests: Mapping[str, Request], most: int = 0
) -> Iterator[Claim]:
    """Claim that the server stopped work for clients that left, by the next client's wait.

    The wait is counted in tokens of another answer: an answer that decodes in the same batch gets a
    token at each step, however busy the machine is.

    Args:
        most: the tokens of an answer before this one, which may have the only slot that is free.
    """
    for name, gone in left.items():
        rest = requests[name].max_tokens - len(gone.answer.text.split())
        if gone.answer.first is None or after.first is None or rest < _LEAST:
            continue
        rest = min(rest, most) if most >= _LASTING else rest
        steps = (after.at_first.get(o, 0) - n for o, n in gone.pieces.items() if o != name)
        made = min(rest, max(steps, default=0))
        waited = after.first - max(gone.answer.last, after.sent)
        holds = made < _PART * rest or waited < _EXCUSED_SECONDS
        cause = "the server goes on with the answers of clients that have left, or of some of them"
        yield Claim("tokens made for a client that had left", str(made), "few", holds, cause)


def asked_again(broken: Came, again: Came) -> Claim:
    """Report an answer that broke off, and whether the server gives it when asked again.

    If it does, the connection or the server's HTTP code is at fault, not the decoding.
    """
    begin, whole = broken.answer.text.strip(), again.answer.text.strip()
    if again.error:
        found = f"asked again it fails, too: {again.error}"
    elif whole.startswith(begin):
        found = "asked again, the server gives it whole: its way here failed, not its decoding"
    else:
        found = f"asked again, the server gives another one: {_apart(whole, begin)!r}"
    said = f"{broken.error} for {broken.name!r} after {len(begin)} characters"
    return Claim("an answer that broke off", said, found, holds=False, failed=True)


def about_limits(
    steps: Sequence[ServedStep], options: EngineOptions, *, prompts: bool
) -> Iterator[Claim]:
    """Claims that a server's own steps keep to the limits that it was started with.

    Args:
        prompts: whether the server has a limit of prompts in one pass.
    """
    calls = [call for step in steps for call in step.forwards]
    pieces = [call for call in calls if call.length > 1]
    rows = max((call.batch for call in calls if call.length == 1), default=0)
    limits = [("rows decoded at once", rows, options.completion_batch_size)]
    if prompts:
        most = max((call.batch for call in pieces), default=0)
        limits.append(("prompts computed at once", most, options.prefill_batch_size))
    longest = max((call.length for call in pieces), default=0)
    limits.append(("tokens of a prompt's piece", longest, options.prefill_step_size))
    for what, found, most in limits:
        yield Claim(f"{what}, of a limit", str(found), f"at most {most}", found <= most)


def about_kept(kept: Sequence[Kept], count: int, nbytes: int | None) -> Iterator[Claim]:
    """Claims that the store of prompts keeps to its limits when a request comes.

    The answer before it may have been added since the limit in bytes was last looked at.

    Args:
        count: the most sequences; ``nbytes``: the most bytes, ``None`` without a limit.
    """
    most = max((found.count for found in kept), default=0)
    yield Claim("prompts kept, of a limit", str(most), f"at most {count}", most <= count)
    if nbytes is not None:
        over = max((found.nbytes - found.last for found in kept), default=0)
        said = f"{over}, without the last answer's"
        yield Claim("bytes of prompts kept, of a limit", said, f"at most {nbytes}", over <= nbytes)


def about_found(found: Sequence[tuple[str, int, int]]) -> Iterator[Claim]:
    """Claim that a prompt of the last two is found, however full the store is.

    Args:
        found: each such request, its tokens that were found, and the most of any.
    """
    for name, count, most in found:
        sentence = (
            f"{count} tokens of the prompt of {name!r} were kept, which is one of the last two"
        )
        yield Claim(
            "tokens kept of one of the last two prompts",
            str(count),
            f"{most}, as of others",
            count >= most,
            cause="a full store lets go what was added or used last",
            sentence=sentence,
        )


def about_prompt(url: str, place: str, question: Question, count: int) -> Claim:
    """Claim that an endpoint counts the tokens of a prompt as it would be answered."""
    what, said = "tokens of a prompt, by the endpoint that counts them", "nothing"
    try:
        with client(_LIST_SECONDS) as asking:
            sent, headers = question.sent, question.headers
            answer = asking.post(f"{url}/v1/{place}", json=sent, headers=headers)
        said = str(answer.json()["input_tokens"])
    except (httpx2.HTTPError, ValueError, TypeError, KeyError) as error:
        said = f"{type(error).__name__}: {error}"
    sentence = f"{place}: the prompt of {question.name!r} is said to have {said} tokens, of {count}"
    cause = "the prompt that is counted is not the one that is answered"
    return Claim(what, said, str(count), said == str(count), cause, sentence)


def about_stored(url: str, answer: Answer) -> Iterator[Claim]:
    """Claim that a response which a server stored is the answer that it gave, until it is deleted.

    See https://platform.openai.com/docs/api-reference/responses/get.
    """
    (name,) = answer.ids
    place, right = f"{url}/v1/responses/{name}", {name: answer.text.split()}
    try:
        with client(_LIST_SECONDS) as asking:
            found = asking.get(place).json()
            said = {str(found["id"]): "".join(texts(found)).split()}
            deleted, gone = asking.delete(place).status_code, asking.get(place).status_code
    except (httpx2.HTTPError, ValueError, TypeError, KeyError) as error:
        shown = f"{type(error).__name__}: {error}"
        yield Claim("a stored response", shown, str(right), holds=False)
        return
    yield Claim("a stored response", str(said), str(right), said == right)
    wanted = (int(HTTPStatus.OK), int(HTTPStatus.NOT_FOUND))
    what = "the statuses of deleting a response, and of asking for it then"
    yield Claim(what, str((deleted, gone)), str(wanted), (deleted, gone) == wanted)


def about_drafts(drafted: Sequence[Drafted], count: int, most: int) -> Iterator[Claim]:
    """Claims that a draft model drafts for each answer, as many tokens as it should.

    Args:
        count: the answers so far; ``most``: the tokens of a draft.
    """
    found = [one for one in drafted if one.calls]
    right = len(found) >= count
    yield Claim("answers that have drafts", str(len(found)), f"at least {count}", right)
    if found:  # most calls are none of a prompt, and not the last of an answer
        length = statistics.mode(length for one in found for length in one.verified)
        yield Claim("tokens verified at once", str(length), str(most + 1), length == most + 1)


def about_right_drafts(drafted: Sequence[Drafted], longest: int, most: int) -> Iterator[Claim]:
    """Claims that answers are verified in no more calls than they have drafts, all of them right.

    Args:
        longest: the tokens of the longest answer; ``most``: the tokens of a draft.
    """
    needed = -(-longest // (most + 1))
    for one in drafted:
        calls = sum(length == most + 1 for length in one.verified)
        what = "calls that verify the right drafts of an answer"
        yield Claim(what, str(calls), f"at most {needed}", calls <= needed)


def about_swap(name: str, before: int, after: int) -> Claim:
    """Claim that a model which is loaded again finds about as much memory in use as before."""
    grown = after - before
    holds = grown <= _MODEL_SHARE * before
    what = f"bytes more than when the model of {name!r} first answered"
    return Claim(what, "few", f"{grown} of {before}", holds)


def about_lists(url: str, health: str, model: str) -> Iterator[Claim]:
    """Claims that a server lists the model which it was started with, and says that it is well."""
    try:
        found = get(f"{url}/v1/models", _LIST_SECONDS).json()
        listed = [(str(one["id"]), one["object"]) for one in found["data"]]
        said, right = f"{found['object']} of {listed}", (model, "model") in listed
    except (httpx2.HTTPError, ValueError, TypeError, KeyError) as error:
        said, right = f"{type(error).__name__}: {error}", False
    yield Claim("the models of a server", said, f"list with {model}", right)
    try:
        status = get(f"{url}{health}", _LIST_SECONDS).status_code
    except httpx2.HTTPError as error:
        yield Claim("a server's health", f"{type(error).__name__}: {error}", "200", holds=False)
        return
    yield Claim("a server's health", str(status), "200", status == HTTPStatus.OK)


def still_open(count: int) -> Claim:
    """Claim that an idle server has no request open, by its own metrics."""
    return Claim("requests in flight by the server's metrics", str(count), "0", count == 0)


def memory_kept(before: int, after: int | None) -> Iterator[Claim]:
    """Claim that many requests leave a server's memory about as it was."""
    if after is not None:
        grown, allowed = after - before, _MEMORY_SHARE * before + _MEMORY_BYTES
        said, right = f"{grown / _MB:+.0f} MB", f"at most {allowed / _MB:+.0f} MB"
        yield Claim("memory that the server kept", said, right, grown <= allowed)


def about_asked(
    request: Request,
    answer: Answer,
    tokens: Callable[[Answer], Sequence[tuple[int, float | None]]],
    words: Sequence[tuple[str, int]],
) -> Iterator[Claim]:
    """Claims about answers to requests with a schema, and about answers with reasoning."""
    asked = request.asked
    if asked is not None and asked.schema:
        said = repr(answer.text.strip()[:40])
        yield Claim("an answer to a JSON schema", said, "valid JSON", fits_schema(answer.text))
    if asked is not None and asked.tools:
        yield from about_parts(answer, [token for token, _ in tokens(answer)], words)


def about_parts(
    answer: Answer, tokens: Sequence[int], words: Sequence[tuple[str, int]]
) -> Iterator[Claim]:
    """Claim that reasoning, text and tool calls, with their markers, are the generated text.

    The markers are between the parts, and never in them.
    """
    texts = ["".join(p.text for p in answer.parts if p.kind is kind) for kind in PartKind]
    markers = (marker for pair in MARKERS.values() for marker in pair)
    if left := [marker for marker in markers if any(marker in text for text in texts)]:
        yield Claim("the parts of an answer", f"{left[0]} among them", "none", holds=False)
        return
    try:
        found = tokens_of(whole_text(answer.parts, MARKERS), words)
    except ValueError as error:
        yield Claim("the parts of an answer", str(error), "its tokens", holds=False)
        return
    yield Claim("the parts of an answer", str(found), str(tuple(tokens)), found == tuple(tokens))
