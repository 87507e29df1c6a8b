"""mlx-vlm's server loses or moves text where a character of several tokens is cut.

- tokenizer_utils.py:326: of SentencePiece's pieces, the bytes of a character that has begun stay in
  the decoder while an ordinary piece comes. E2, "a", 82, AC, "b" give "a\u20acb"; they are
  "\ufffda\ufffd\ufffdb".
- tokenizer_utils.py:61: a text that ends with a replacement is held back even at the end. Of a last
  token with a whole character and half of another one, nothing comes.

Exit code 1 while any of them is wrong.
"""

import sys
from importlib.metadata import version
from types import SimpleNamespace

from mlx_vlm.tokenizer_utils import (
    NaiveStreamingDetokenizer,
    SPMStreamingDetokenizer,
    _ServerTokenStreamer,
)

SPM = ("<0xE2>", "a", "<0x82>", "<0xAC>", "b")
BYTES = (b"so ", "\u00e9".encode() + b"\xc3")


def text(tokenizer, detokenizer, count):
    streamer = _ServerTokenStreamer(tokenizer, detokenizer)
    ends = [None] * (count - 1) + ["length"]
    return "".join(streamer.advance(token, end) for token, end in enumerate(ends))


def keeps_bytes():
    tokenizer = SimpleNamespace(vocab={piece: token for token, piece in enumerate(SPM)})
    said = text(tokenizer, SPMStreamingDetokenizer(tokenizer, trim_space=False), len(SPM))
    return said, "\ufffda\ufffd\ufffdb"


def loses_text():
    def decode(tokens):
        return b"".join(BYTES[token] for token in tokens).decode(errors="replace")

    tokenizer = SimpleNamespace(decode=decode)
    return text(tokenizer, NaiveStreamingDetokenizer(tokenizer), len(BYTES)), "so \u00e9\ufffd"


def main():
    print(f"mlx-vlm {version('mlx-vlm')}")
    wrong = False
    for check in (keeps_bytes, loses_text):
        said, right = check()
        print(f"{check.__name__}: {said!r}, right is {right!r}")
        wrong |= said != right
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
