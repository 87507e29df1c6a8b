"""A small server of the API with slots, and a subclass for each thing that it can do wrong.

An answer's words follow from its prompt alone. A loop gives each row a word at each tick.
"""

import collections
import hashlib
import itertools
import json
import queue
import socketserver
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WORDS = [f"w{i}" for i in range(40)]
# Characters of two to four bytes, emoji with joiners, letters with combining marks.
WORDS += ["né", "e\u0301t", "雪", "한국", "क्षि", "שׁל", "👍🏽", "👩‍👩‍👧", "🇩🇪", "𝔘𐍈"]
END = object()
JSON = ['{"a":', "1}"]


def word_at(prompt, index):
    """The word that is right at an index of the answer to a prompt."""
    digest = hashlib.sha256(f"{index} {prompt}".encode()).digest()
    return WORDS[int.from_bytes(digest[:4]) % len(WORDS)]


@dataclass(eq=False)
class Row:
    """A request that is answered."""

    prompt: str
    limit: int
    stop: list = field(default_factory=list)
    words: list = field(default_factory=list)
    out: queue.Queue = field(default_factory=queue.Queue)
    gone: bool = False
    reason: str | None = None
    model: str = "small"
    schema: bool = False
    top: int = 0

    @property
    def next(self):
        return self.at(len(self.words))

    def at(self, index):
        return word_at(f"{self.model} {self.prompt}", index)


class Served:
    """The right server; ``with`` runs it."""

    slots, tick = 32, 0.001
    models = ("small", "other")
    paths = ("/v1/chat/completions", "/v1/messages")
    done, more = b"data: [DONE]\n\n", b""

    def __init__(self):
        self.rows, self.waiting = [], collections.deque()
        self.lock, self.stopped = threading.Lock(), threading.Event()
        served = self

        class Bound(Handler):
            server_of = served

        self.http = Accepting(("127.0.0.1", 0), Bound)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"

    def __enter__(self):
        for work in (self.http.serve_forever, self.loop):
            threading.Thread(target=work, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.http.shutdown()
        self.http.server_close()

    def loop(self):
        while not self.stopped.is_set():
            with self.lock:
                self.rows = [row for row in self.rows if not self.leaves(row)]
                while self.waiting and len(self.rows) < self.slots:
                    self.join(self.waiting.popleft())
                for row in list(self.rows):
                    self.advance(row)
            time.sleep(self.tick)

    def leaves(self, row):
        return row.gone or row.reason is not None

    def join(self, row):
        self.rows.append(row)

    def advance(self, row):
        ahead = [row.at(len(row.words) + i) for i in range(len(row.stop))]
        if self.bound(row):
            self.give_json(row)
        elif row.stop and ahead == row.stop:
            row.words += ahead
            row.reason = "stop"
        else:
            word = row.next
            row.words.append(word)
            row.reason = "length" if len(row.words) == row.limit else None
            self.give(row, word)
        if row.reason:
            row.out.put(END)

    def give(self, row, word):
        row.out.put(word)

    def bound(self, row):
        """Whether the row's answer must be JSON of the schema."""
        return row.schema

    def give_json(self, row):
        word = JSON[len(row.words)]
        row.words.append(word)
        row.reason = "stop" if len(row.words) == len(JSON) else None
        self.give(row, word)

    def metrics(self):
        return {"summary": {"in_flight": len(self.rows) + len(self.waiting)}}

    def submit(self, row):
        with self.lock:
            self.waiting.append(row)

    def check(self, body):
        """The reason to refuse a body, with the status."""
        messages = body.get("messages") if isinstance(body, dict) else None
        if not isinstance(messages, list) or not messages or not isinstance(messages[0], dict):
            return 400, "messages must be a list of messages"
        if not all(isinstance(message.get("content"), str) for message in messages):
            return 422, "content must be a text"
        if not messages[0]["content"]:
            return 400, "content must have words"
        if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
            return 400, "max_tokens must be a number of at least 1"
        temperature = body.get("temperature", 0)
        if not isinstance(temperature, int | float) or temperature < 0:
            return 400, "temperature must be a number of at least 0"
        if not isinstance(body.get("stream", False), bool):
            return 400, "stream must be true or false"
        if not 0 <= body.get("top_p", 1) <= 1:
            return 400, "top_p must be at most 1"
        stop = body["stop"] = as_list(body.get("stop", []))
        if not isinstance(stop, list) or not all(isinstance(s, str) for s in stop):
            return 400, "stop must be texts"
        if not all(isinstance(v, int | float) for v in (body.get("logit_bias") or {}).values()):
            return 400, "logit_bias must be numbers"
        if body.get("model") not in self.models:
            return 404, "no such model"
        return None

    def usage(self, row):
        prompt, count = len(row.prompt.split()), len(row.words)
        return {"prompt_tokens": prompt, "completion_tokens": count, "total_tokens": prompt + count}

    def chunk(self, row, index, **more):
        return {
            "id": f"c{id(row)}",
            "object": "chat.completion.chunk",
            "model": "small",
            "created": 0,
            **more,
        }

    def choice(self, word, reason, kind):
        content = {"role": "assistant", "content": word}
        return {"index": 0, "finish_reason": reason, kind: content, "logprobs": self.logprobs(word)}

    def logprobs(self, word):
        if not word:
            return None
        own = {"token": word, "logprob": -0.25}
        return {"content": [own | {"top_logprobs": [own]}]}

    def streamed(self, row, write):
        """Write the pieces of an answer; the first that cannot be written is a client that left."""
        for index, word in enumerate(iter(row.out.get, END)):
            piece = f"{' ' if index else ''}{word}" if word else ""
            choice = self.choice(piece, None, "delta")
            if choice["logprobs"]:
                choice["logprobs"]["content"][0]["token"] = word
            write(self.chunk(row, index, choices=[choice]))
        self.end(row, write)

    def end(self, row, write):
        last = {"index": 0, "finish_reason": row.reason, "delta": {}, "logprobs": None}
        write(self.chunk(row, -1, choices=[last]))
        write(self.chunk(row, -1, choices=[], usage=self.usage(row)))

    def whole(self, row):
        words = [word for word in iter(row.out.get, END) if word]
        choice = self.choice(" ".join(words), row.reason, "message")
        choice["logprobs"] = {"content": [self.logprobs(w)["content"][0] for w in words]}
        return {
            "id": "c1",
            "object": "chat.completion",
            "model": "small",
            "created": 0,
            "choices": [choice],
            "usage": self.usage(row),
        }

    def message(self, row, text=None):
        words = [word for word in iter(row.out.get, END) if word] if text is None else []
        content = [{"type": "text", "text": " ".join(words)}] if text is None else []
        usage = {"input_tokens": len(row.prompt.split()), "output_tokens": len(row.words)}
        return {
            "id": f"msg_{id(row)}",
            "type": "message",
            "role": "assistant",
            "model": "small",
            "content": content,
            "stop_reason": self.stop_reason(row) if text is None else None,
            "stop_sequence": None,
            "usage": usage,
        }

    def stop_reason(self, row):
        return {"length": "max_tokens", "stop": "end_turn"}[row.reason]

    def events(self, row):
        """The events of a stream of Anthropic's API."""
        yield {"type": "message_start", "message": self.message(row, text="")}
        block = {"type": "text", "text": ""}
        yield {"type": "content_block_start", "index": 0, "content_block": block}
        for index, word in enumerate(iter(row.out.get, END)):
            delta = {"type": "text_delta", "text": f"{' ' if index else ''}{word}"}
            yield {"type": "content_block_delta", "index": 0, "delta": delta}
        yield {"type": "content_block_stop", "index": 0}
        delta = {"stop_reason": self.stop_reason(row), "stop_sequence": None}
        usage = {"output_tokens": len(row.words)}
        yield {"type": "message_delta", "delta": delta, "usage": usage}
        yield {"type": "message_stop"}


def as_list(stop):
    """A stop string by itself as a list of it."""
    return [stop] if isinstance(stop, str) else stop


def from_messages(body):
    """The fields of OpenAI's API for those of Anthropic's."""
    system = [{"role": "system", "content": body["system"]}] if "system" in body else []
    stops = {"stop": body["stop_sequences"]} if "stop_sequences" in body else {}
    return {**body, **stops, "messages": [*system, *body["messages"]]}


class Accepting(ThreadingHTTPServer):
    request_queue_size = 1024
    daemon_threads = True


class Handler(BaseHTTPRequestHandler):
    """Reads requests and writes what ``server_of`` says."""

    server_of: Served
    kind = "application/json"

    def log_message(self, *_): ...

    def do_GET(self):
        if self.path == "/metrics":
            return self.answer(200, self.server_of.metrics())
        return self.answer(200, {"data": [{"id": name} for name in self.server_of.models]})

    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            body = json.loads(text.decode())
        except ValueError as error:
            return self.answer(400, {"error": str(error)})
        if isinstance(body, dict) and "max_completion_tokens" in body:
            body["max_tokens"] = body.pop("max_completion_tokens")
        if refused := self.server_of.check(body):
            return self.refuse(*refused)
        if self.path not in self.server_of.paths:
            return self.refuse(404, "no such path")
        if self.path == "/v1/messages":
            body = from_messages(body)
        stop = (body.get("stop") or [""])[0].split()
        prompt = " ".join(f"{m['role'][0]}: {m['content']}" for m in body["messages"])
        row = Row(prompt, body["max_tokens"], stop)
        row.model, row.schema = body["model"], "response_format" in body
        row.top = body.get("top_logprobs", 0)
        self.server_of.submit(row)
        if self.path == "/v1/messages":
            return self.message(row, streamed=body.get("stream"))
        if not body.get("stream"):
            return self.answer(200, self.server_of.whole(row))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        try:
            self.server_of.streamed(row, self.write)
            self.wfile.write(self.server_of.done)
        except OSError:
            row.gone = True
        return None

    def message(self, row, *, streamed):
        """Answer as Anthropic's API does."""
        if not streamed:
            return self.answer(200, self.server_of.message(row))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        try:
            for event in self.server_of.events(row):
                self.wfile.write(f"event: {event['type']}\n".encode())
                self.write(event)
        except OSError:
            row.gone = True
        return None

    def refuse(self, status, reason):
        self.answer(status, {"error": reason})

    def write(self, chunk):
        text = chunk if isinstance(chunk, str) else json.dumps(chunk)
        self.wfile.write(f"data: {text}\n\n".encode())
        self.wfile.flush()

    def answer(self, status, content):
        text = content if isinstance(content, str) else json.dumps(content)
        self.send_response(status)
        self.send_header("Content-Type", self.kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode() + self.server_of.more)


socketserver.TCPServer.allow_reuse_address = True


class Small(Served):
    """A right server with four slots and one model, which refuses what it does not have."""

    slots, models = 4, ("small",)
    lacks = ("logprobs", "top_logprobs", "response_format", "stream_options")

    def check(self, body):
        if isinstance(body, dict) and (found := [name for name in self.lacks if name in body]):
            return 400, f"{found[0]} is not supported here"
        return super().check(body)


class WithoutMessages(Served):
    """A right server that has chats alone."""

    paths = ("/v1/chat/completions",)


class WithoutStop(Small):
    """A right server that has no stop strings either."""

    lacks = (*Small.lacks, "stop")


class SaysNoLogprobs(Served):
    """A right server that ignores logprobs."""

    models = ("small",)

    def choice(self, word, reason, kind):
        return {**super().choice(word, reason, kind), "logprobs": None}

    def streamed(self, row, write):
        def bare(chunk):
            write({**chunk, "choices": [{**c, "logprobs": None} for c in chunk["choices"]]})

        super().streamed(row, bare)

    def whole(self, row):
        made = super().whole(row)
        made["choices"][0]["logprobs"] = None
        return made


class EndsByItself(Served):
    """A right server whose answers end by themselves, some of them early."""

    models = ("small",)

    def advance(self, row):
        super().advance(row)
        digest = hashlib.sha256(f"{row.prompt} {len(row.words)}".encode()).digest()
        if row.reason is None and len(row.words) > 3 and digest[0] < 16:
            row.reason = "stop"
            row.out.put(END)


class EndsSoon(EndsByItself):
    """All answers end after five words."""

    def advance(self, row):
        Served.advance(self, row)
        if row.reason is None and len(row.words) > 4:
            row.reason = "stop"
            row.out.put(END)


class SubWords(Served):
    """A right server whose tokens are parts of words and of characters, as those of a BPE."""

    models, paths = ("small",), ("/v1/chat/completions",)

    def join(self, row):
        super().join(row)
        row.made, row.sent = [], 0
        row.text = lambda: b"".join(row.words).decode(errors="ignore")
        row.stop = " ".join(row.stop)

    def piece(self, row):
        """The row's next token: at most three bytes."""
        while len(row.made) <= len(row.words):
            count = sum(piece.startswith(b" ") for piece in row.made)
            word = f" {word_at(row.prompt, count)}".encode()
            row.made += [word[:2], *(word[at : at + 3] for at in range(2, len(word), 3))]
        return JSON[len(row.words)].encode() if row.schema else row.made[len(row.words)]

    def advance(self, row):
        row.words.append(piece := self.piece(row))
        said, stop = row.text(), row.stop
        held = next((n for n in range(len(stop), 0, -1) if said.endswith(stop[:n])), 0)
        shown = said[: len(said) - held]
        if len(row.words) == (len(JSON) if row.schema else row.limit):
            row.reason, shown = "stop" if row.schema else "length", said
        if stop and stop in said:
            row.reason, shown = "stop", said.partition(stop)[0]
        self.give(row, (shown[row.sent :], self.entry(row, piece)))
        row.sent = max(row.sent, len(shown))
        if row.reason:
            row.out.put(END)

    def entry(self, row, piece):
        named = {"token": piece.decode(errors="replace"), "bytes": list(piece)}
        own = {**named, "logprob": -0.25 - len(piece) / 8}
        return {**own, "top_logprobs": [own]}

    def said(self, kind, text, entries, reason=None):
        content = {"role": "assistant", "content": text}
        return {
            "index": 0,
            "finish_reason": reason,
            kind: content,
            "logprobs": {"content": entries},
        }

    def streamed(self, row, write):
        for index, (text, entry) in enumerate(iter(row.out.get, END)):
            write(self.chunk(row, index, choices=[self.said("delta", text, [entry])]))
        self.end(row, write)

    def whole(self, row):
        texts, entries = zip(*iter(row.out.get, END), strict=True)
        choice = self.said("message", "".join(texts), list(entries), row.reason)
        return self.chunk(row, 0, choices=[choice], usage=self.usage(row)) | {
            "object": "chat.completion"
        }


class ListsLikeliest(SubWords):
    """A right server with such tokens, which lists as many of the likeliest as are asked for."""

    def entry(self, row, piece):
        own = super().entry(row, piece)
        others = [{**own, "token": f"~{n}", "bytes": None, "logprob": -3.0 - n} for n in range(9)]
        tops = [{key: top[key] for key in ("token", "bytes", "logprob")} for top in (own, *others)]
        return {**own, "top_logprobs": tops[: row.top]}


class SubWordsAlone(SubWords):
    """A right server with such tokens, without logprobs."""

    def said(self, kind, text, entries, reason=None):
        return super().said(kind, text, [], reason) | {"logprobs": None}


class CapsAnswers(SubWordsAlone):
    """A right server that lets no answer be longer than it says, however long it may be."""

    most = 16

    def submit(self, row):
        row.limit = min(row.limit, self.most)
        super().submit(row)


class NamesAsVocabularies(SubWords):
    """A right server that names a token as a byte-level vocabulary does, without its bytes."""

    def entry(self, row, piece):
        name = piece.decode("latin-1").replace(" ", "\u0120")
        own = {"token": name, "bytes": None, "logprob": -0.25 - len(piece) / 8}
        return {**own, "top_logprobs": [own]}


class NamesBytes(SubWords):
    """A right server that gives the bytes of tokens in place of their names."""

    def entry(self, row, piece):
        own = {"token": "", "bytes": list(piece), "logprob": -0.25 - len(piece) / 8}
        return {**own, "top_logprobs": [own]}


class NamesNothing(SubWords):
    """A right server whose entries of logprobs have no names, which it does not offer then."""

    def entry(self, row, piece):
        return {"id": piece[0], "logprob": -0.25 - len(piece) / 8}


class CountsNothing(SubWords):
    """A right server that has no usage at all."""

    def usage(self, row):
        return None


class SaysLittle(SaysNoLogprobs):
    """A right server without logprobs and usage: fields backwards, one id for all, long pieces."""

    def usage(self, row):
        return None

    def streamed(self, row, write):
        def joined(chunk):
            choice = chunk["choices"][0] if chunk["choices"] else {"delta": {}}
            held.append(choice["delta"].get("content") or "")
            if len(held) > 4 or choice.get("finish_reason"):
                choice = {**choice, "delta": {"content": "".join(held)}}
                write(dict(reversed({**chunk, "id": "0", "choices": [choice]}.items())))
                held.clear()

        held = []
        super().streamed(row, joined)


class SaysItOddly(SubWords):
    """A right server that does what the API leaves open.

    A stream begins with a role and nulls, has several tokens in an event and usage in
    each; tokens are named by their ids, the chosen one is listed before likelier ones.
    """

    def entry(self, row, piece):
        own = {"logprob": -0.5, "token": f"token_id:{int.from_bytes(piece)}", "bytes": None}
        others = [
            {"logprob": round(-0.2 - at * 1.37, 2), "token": f"token_id:{at}"} for at in (1, 2)
        ]
        return {"top_logprobs": [own, *others], **own}

    def streamed(self, row, write):
        none = {"index": 0, "finish_reason": None, "logprobs": {"content": None, "refusal": None}}
        role = {"role": "assistant", "content": None, "refusal": None, "tool_calls": None}
        write(self.chunk(row, 0, choices=[{**none, "delta": role}], usage=None))
        held = []
        for pair in itertools.chain(iter(row.out.get, END), [END]):
            if held and (pair is END or len(held) == 3):
                texts, entries = zip(*held, strict=True)
                reason = row.reason if pair is END else None
                choice = self.said("delta", "".join(texts), list(entries), reason)
                choice["delta"].pop("role")
                write(self.chunk(row, 0, choices=[choice], usage=self.usage(row)))
                held = []
            held.append(pair)


class OneAtATime(Served):
    """A right server with one slot."""

    slots, models = 1, ("small",)


RIGHT = [
    kind for kind in list(globals().values()) if isinstance(kind, type) and issubclass(kind, Served)
]


class CountsAnother(SaysNoLogprobs):
    """With several rows, the usage is that of the first."""

    def usage(self, row):
        return super().usage(next(iter(self.rows), row))


class LosesSpaces(SaysNoLogprobs):
    """Beside others, an answer in one piece has lines for blanks."""

    def whole(self, row):
        made = super().whole(row)
        if len(self.rows) > 1:
            message = made["choices"][0]["message"]
            message["content"] = message["content"].replace(" ", "\n")
        return made


class DropsLogprobs(Served):
    """With several rows, a stream has no logprobs after its third word."""

    models = ("small",)

    def drops(self, row):
        return len(self.rows) > 2 and len(row.words) > 3

    def streamed(self, row, write):
        def bare(chunk):
            dropped = [{**choice, "logprobs": None} for choice in chunk["choices"]]
            write({**chunk, "choices": dropped} if self.drops(row) else chunk)

        super().streamed(row, bare)


class WrongPiece(SubWordsAlone):
    """With several rows, a token is another one."""

    def piece(self, row):
        other = len(self.rows) > 2 and len(row.words) == 6
        return b"x" if other else SubWords.piece(self, row)


class WrongPieceWithLogprobs(SubWords):
    """As before, with logprobs."""

    piece = WrongPiece.piece


class LosesPiece(SubWords):
    """With several rows, a piece of a text is lost, and not its logprobs."""

    def give(self, row, word):
        lost = len(self.rows) > 2 and len(row.words) == 6
        super().give(row, ("", word[1]) if lost else word)


class PieceOfAnother(SubWordsAlone):
    """With several rows, a piece goes to the row before its own."""

    def give(self, row, word):
        at = self.rows.index(row)
        mixed = at and len(row.words) == 5
        (self.rows[at - 1] if mixed else row).out.put(word)


class LogprobsOfAnother(SubWords):
    """With several rows, the logprobs are others."""

    def entry(self, row, piece):
        made = super().entry(row, piece)
        if len(self.rows) > 2:
            made |= {"logprob": made["logprob"] - 7, "top_logprobs": []}
        return made


class LikeliestOfAnother(SubWords):
    """With several rows, the second likeliest token is the first row's."""

    def entry(self, row, piece):
        made, first = super().entry(row, piece), self.rows[0]
        low = -2 - len(first.prompt) % 7
        second = {"token": "zz", "bytes": list(b"zz"), "logprob": low}
        return made | {"top_logprobs": [*made["top_logprobs"], second]}


class ShiftsLogprobs(SubWords):
    """All entries of logprobs are those of the token before."""

    def entry(self, row, piece):
        return super().entry(row, row.words[-2] if len(row.words) > 1 else piece)


class NamesNothingBeside(NamesNothing):
    """The same, with a wrong token in the longest of several answers."""

    piece = WrongPiece.piece


class LosesLastText(SubWords):
    """All texts lack that of the last token, and the logprobs have it."""

    def give(self, row, word):
        super().give(row, ("", word[1]) if row.reason == "length" else word)


class LosesFirstText(SubWords):
    """All texts lack that of the first token, and the logprobs have it."""

    def give(self, row, word):
        super().give(row, ("", word[1]) if len(row.words) == 1 else word)


class ShiftsLikeliest(SubWords):
    """With several rows, the likeliest tokens but the chosen one are less likely."""

    def entry(self, row, piece):
        made, off = super().entry(row, piece), 0.45 * (len(self.rows) > 1)
        others = [{"token": t, "bytes": list(t.encode()), "logprob": -3 - off} for t in "xyz"]
        return made | {"top_logprobs": [*made["top_logprobs"], *others]}


class SaysStopAtLimit(SubWordsAlone):
    """All answers are said to have ended by themselves."""

    def end(self, row, write):
        row.reason = "stop"
        super().end(row, write)

    def whole(self, row):
        made = super().whole(row)
        made["choices"][0]["finish_reason"] = "stop"
        return made


class ReasonOfAnother(SubWords):
    """With several rows, an answer ends for the reason of the one that ended before it."""

    last = None

    def end(self, row, write):
        own, self.last = self.last, row.reason
        row.reason = own if own and len(self.rows) > 1 else row.reason
        super().end(row, write)


class EndsEarlyAtLimit(SubWordsAlone):
    """All answers end after three tokens, as if by their limit."""

    def join(self, row):
        super().join(row)
        row.limit = min(row.limit, 3)


class DropsLastToken(Served):
    """A stream lacks its last word."""

    def give(self, row, word):
        if row.reason != "length":
            super().give(row, word)


class TextOfAnother(Served):
    """With several rows, a word goes to the row before its own."""

    def give(self, row, word):
        at = self.rows.index(row)
        mixed = at and len(row.words) == 4
        (self.rows[at - 1] if mixed else row).out.put(word)


class RepeatsPiece(Served):
    """A piece of a stream comes twice while others are at work."""

    def give(self, row, word):
        super().give(row, word)
        if len(self.rows) > 1 and len(row.words) == 3:
            super().give(row, word)


class NoticesNobodyLeft(Served):
    """Who left goes on to the end of the answer."""

    def leaves(self, row):
        return row.reason is not None


class KeepsSlot(Served):
    """The slot of who left is never free again."""

    def leaves(self, row):
        return row.reason is not None

    def advance(self, row):
        if not row.gone:
            super().advance(row)


class CountsOneTooMany(Served):
    """The usage has one token too many in the answer."""

    def usage(self, row):
        said = super().usage(row)
        return {
            **said,
            "completion_tokens": said["completion_tokens"] + 1,
            "total_tokens": said["total_tokens"] + 1,
        }


class TotalIsWrong(Served):
    """The total is not the sum."""

    def usage(self, row):
        return {**super().usage(row), "total_tokens": 1}


class CountsNoStreams(Served):
    """Streams have no usage, whatever their clients ask for."""

    def end(self, row, write):
        super().end(row, lambda chunk: write(chunk) if chunk["choices"] else None)


class LoopEndsAtError(Served):
    """A wrong temperature comes to the loop, which ends; the port still answers."""

    def check(self, body):
        temperature = body.get("temperature") if isinstance(body, dict) else 0
        if isinstance(temperature, str):
            self.stopped.set()
        return super().check(body)


class StarvesWhoJoins(Served):
    """Only the row that came first gets words."""

    def advance(self, row):
        if row is self.rows[0]:
            super().advance(row)


class SkipsAtJoin(Served):
    """When a row joins, the others lose a word."""

    def join(self, row):
        for other in self.rows:
            other.words.append(other.next)
        super().join(row)


class LosesWhoWaits(Served):
    """Who finds no slot is forgotten."""

    def submit(self, row):
        with self.lock:
            if len(self.rows) + len(self.waiting) < self.slots:
                self.waiting.append(row)


class WholeIsShorter(Served):
    """An answer in one piece lacks a word that the stream has."""

    def whole(self, row):
        made = super().whole(row)
        message = made["choices"][0]["message"]
        if len(message["content"].split()) > 5:
            message["content"] = message["content"].rpartition(" ")[0]
        return made


class EndsWithoutReason(Served):
    """A stream has no finish_reason."""

    def end(self, row, write):
        row.reason = None
        super().end(row, write)


class UnknownReason(Served):
    """A finish_reason that the API does not have."""

    def end(self, row, write):
        row.reason = "done"
        super().end(row, write)


class ChangesId(Served):
    """Pieces of one stream have several ids."""

    def chunk(self, row, index, **more):
        return {**super().chunk(row, index, **more), "id": f"c{index}"}


class IgnoresStop(Served):
    """A stop string ends nothing."""

    def submit(self, row):
        row.stop = []
        super().submit(row)


class TakesAnything(Served):
    """Numbers out of range are accepted."""

    def check(self, body):
        body["max_tokens"] = (
            max(1, body.get("max_tokens") or 1) if isinstance(body.get("max_tokens"), int) else 1
        )
        return super().check(body)


class FailsForClients(Served):
    """What the client did wrong is called the server's error."""

    def check(self, body):
        refused = super().check(body)
        return refused and (500, refused[1])


class RefusesWithoutReason(Served):
    """A malformed request is refused with nothing said."""

    def check(self, body):
        refused = super().check(body)
        return refused and (204, "")


class SaysNan(Served):
    """A logprob is not a number."""

    def logprobs(self, word):
        made = super().logprobs(word)
        if made:
            made["content"][0]["logprob"] = float("nan")
        return made


class Garbles(Served):
    """A piece is no JSON."""

    def streamed(self, row, write):
        write("{]")
        super().streamed(row, write)


class CutsStreams(Served):
    """A stream ends in the middle while others are at work."""

    def cut(self):
        return len(self.rows) > 1

    def streamed(self, row, write):
        for index, word in enumerate(iter(row.out.get, END)):
            if index == 3 and self.cut():
                return
            write(self.chunk(row, index, choices=[self.choice(f" {word}", None, "delta")]))
        self.end(row, write)


class SaysHtml(Served):
    """Pages in place of streams."""

    def streamed(self, row, write):
        write("<html>busy</html>")


class ConstrainsOthers(Served):
    """Who is beside an answer of a schema is constrained, too."""

    def bound(self, row):
        return any(other.schema for other in self.rows) and len(row.words) < len(JSON)


class KeepsConstraint(Served):
    """The plain request after one with a schema is constrained."""

    last = False

    def join(self, row):
        super().join(row)
        row.schema, self.last = row.schema or self.last, row.schema


class LosesConstraint(Served):
    """Beside others an answer is not of the schema that was given for it."""

    def bound(self, row):
        return row.schema and len(self.rows) == 1


class KeepsModel(Served):
    """Once another model was loaded, the first one is not loaded again."""

    other = False

    def submit(self, row):
        self.other = self.other or row.model == "other"
        row.model = "other" if self.other else "small"
        super().submit(row)


class LoadsNothing(Served):
    """While a model answers, no other is loaded: it answers in its place."""

    def join(self, row):
        row.model = self.rows[0].model if self.rows else row.model
        super().join(row)


class KeepsSystem(Served):
    """A user's message that was seen before gets the system message that it had then."""

    def __init__(self):
        super().__init__()
        self.seen = {}

    def submit(self, row):
        row.prompt = self.seen.setdefault(row.prompt.rpartition("u: ")[2], row.prompt)
        super().submit(row)


class KeepsMemory(Served):
    """Each request leaves a megabyte behind, which is only counted here: ``kept``, in bytes."""

    kept = 0

    def submit(self, row):
        type(self).kept += 2**20
        super().submit(row)


class SaysInFlight(Served):
    """The metrics count requests that have ended."""

    def metrics(self):
        return {"summary": {"in_flight": 1}}


class CutsCharacters(Served):
    """In a stream, a character of several bytes is decoded byte by byte."""

    def streamed(self, row, write):
        def cut(chunk):
            for choice in chunk["choices"]:
                if content := choice.get("delta", {}).get("content"):
                    said = "".join(bytes([b]).decode(errors="replace") for b in content.encode())
                    choice["delta"]["content"] = said
            write(chunk)

        super().streamed(row, cut)


class SaysTurnEnded(Served):
    """In Anthropic's API an answer at its limit is said to have ended by itself."""

    def stop_reason(self, row):
        return "end_turn"


class SendsMore(Served):
    """An answer in one piece is longer than its headers say."""

    more = b"}"


class SaysNoDone(Served):
    """A stream lacks the event at its end."""

    done = b""


class LosesSlots(Served):
    """After many requests most slots are gone."""

    count = 0

    def submit(self, row):
        self.count += 1
        self.slots = 4 if self.count > 300 else 32
        super().submit(row)


WRONG = [
    kind
    for kind in list(globals().values())
    if isinstance(kind, type) and issubclass(kind, Served) and kind not in RIGHT
]
