"""A server at the user's URL: its models, and the known texts of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2

from conformance.core.errors import ModelError, Unsupported
from conformance.core.http_clients import RefusedAnswerError, get
from conformance.core.named_server import NamedServer
from conformance.core.schedule import Request
from conformance.plugins.servers.answers import Tokens
from conformance.plugins.servers.asking import Answer, Question
from conformance.plugins.servers.english import WORDS
from conformance.plugins.servers.fields import further, messages

VOCABULARY = 8192
"""The most different texts of tokens in a run."""
END = VOCABULARY - 1
"""Replaces each missing token of an answer that ended before its limit."""
_TOP = 5
_SECONDS = 120.0
_LONGEST = 300  # characters of a server's names


@dataclass
class Remote:
    """The server, the known texts of tokens, the number of requests made, and the answers."""

    server: NamedServer
    model: str
    dtype: str
    texts: dict[str, int] = field(default_factory=lambda: {w: i for i, w in enumerate(WORDS)})
    made: int = 0
    tables: dict[Any, Any] = field(default_factory=dict)

    def token(self, text: str) -> int:
        """The number of a token's text.

        Raises:
            Unsupported: there are too many texts.
        """
        found = self.texts.setdefault(text, len(self.texts))
        if found >= END:
            raise Unsupported(f"the server's answers have more than {END} different tokens")
        return found

    def model_name(self, other: int = 0) -> str:
        """The server's name for its model, or for another of its models.

        Raises:
            Unsupported: the server has no other model.
        """
        if not other:
            return self.model
        others = [name for name in models(self.server.url) if name != self.model]
        if len(others) < other:
            raise Unsupported(f"/v1/models names no model beside {self.model}: not supported")
        return others[other - 1]

    def text(self, tokens: Sequence[int]) -> str:
        """The text of these tokens."""
        words = list(self.texts)
        return " ".join(words[token] for token in tokens)

    def question(self, request: Request, *, streamed: bool) -> Question:
        """The request as text.

        Raises:
            Unsupported: the user's limit of requests is reached.
        """
        self.made += 1
        if self.server.most is not None and self.made > self.server.most:
            raise Unsupported(f"more than {self.server.most:,} requests (--requests)")
        asked = request.asked
        chat = asked is None or asked.chat
        body: dict[str, Any] = {
            "model": self.model_name(asked.other if asked is not None else 0),
            "input": messages(request, self.text) if chat else self.text(request.prompt),
            "max_tokens": request.max_tokens,
            "temperature": 0.0,
            "stream": streamed,
            "logprobs": True,
            "top_logprobs": _TOP,
        }
        if streamed:
            body["stream_options"] = {"include_usage": True}
        if request.stop:
            body["stop"] = [self.text(sequence) for sequence in request.stop]
        body |= further(request)
        return Question(request.request_id, body, chat=chat)

    def tokens(self, answer: Answer) -> Tokens:
        """The answer's words, with logprobs if the words are its tokens."""
        words = answer.text.split()
        said = [entry.get("logprob") for entry in answer.entries]
        known = said if len(said) == len(words) else [None] * len(words)
        return [(self.token(word), logprob) for word, logprob in zip(words, known, strict=True)]


def models(url: str) -> list[str]:
    """The names of all models that the server has; at least one."""
    try:
        found = get(f"{url}/v1/models", _SECONDS)
        if found.is_redirect:
            place = found.headers.get("location", "")[:_LONGEST]
            raise ModelError(f"{url}/v1/models leads to {place}, and redirects are not followed")
        found.raise_for_status()
        names = [str(model["id"]) for model in found.json()["data"]]
        return [names[0], *names[1:]]
    except (RefusedAnswerError, httpx2.HTTPStatusError) as error:
        raise ModelError(f"{url}/v1/models: {error}") from error
    except httpx2.HTTPError as error:
        raise ModelError(f"{url}/v1/models: no server answers there: {error}") from error
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise ModelError(
            f"{url}/v1/models names no model ({type(error).__name__}); --model does"
        ) from error
