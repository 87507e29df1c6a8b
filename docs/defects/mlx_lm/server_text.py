"""mlx_lm.server looks for stop strings by their tokens, and drops what it holds back at an end.

- generate.py:1043 makes tokens of a stop string by itself. In "say stop it" as the tokens "say",
  " st", "op it" the string "stop" has other tokens: the answer does not end. The text machine
  (generate.py:1086) takes the string out of the text all the same.
- server.py:1615 discards what is held back when a token ends an answer. With the stop string
  "stop", an answer "say st" that ends there lacks its last two letters.
- generate.py:1013 lets text go only where no string may have begun in it. With the stop string
  "ssto", of "sssto" the first letter belongs to no stop string, but is held with the others, and
  discarded with them.

Each is asked of the functions that the server calls. Exit code 1 while any of them is wrong.
"""

import sys
from importlib.metadata import version
from types import SimpleNamespace

from mlx_lm.generate import TextStateMachine, make_stop_sequences, make_text_state_machine

PIECES = {1: "say", 2: " st", 3: "op it", 4: "stop", 5: " st"}
STOP = "stop"
TOKENIZER = SimpleNamespace(
    eos_token_ids={9},
    encode=lambda text, add_special_tokens: [token for token, t in PIECES.items() if t == text],
    has_thinking=False,
    has_tool_calling=False,
    structural_markers=(),
    response_transitions={},
)


def goes_on():
    matcher = make_stop_sequences(TOKENIZER, [STOP]).matcher()
    ended = [matcher.advance(token) for token in (1, 2, 3)].count(True) > 0
    machine = make_text_state_machine(TOKENIZER, [STOP])
    state, text = machine.make_state("normal"), ""
    for token in (1, 2, 3):
        state, segments = TextStateMachine.split(state, PIECES[token])
        text += "".join(part for _, part in segments)
    return not ended, f"'say stop it' with the stop string 'stop': ended {ended}, text {text!r}"


def loses_text():
    state, text = make_text_state_machine(TOKENIZER, [STOP]).make_state("normal"), ""
    for token in (1, 5):
        state, segments = TextStateMachine.split(state, PIECES[token])
        text += "".join(part for _, part in segments)
    # What server.py does once a token has ended the answer.
    state, _ = TextStateMachine.discard(state)
    return text != "say st", f"'say st' that a token ends: {text!r}"


def loses_text_before_a_stop():
    state, text = make_text_state_machine(TOKENIZER, ["ssto"]).make_state("normal"), ""
    for letter in "ssst":
        state, segments = TextStateMachine.split(state, letter)
        text += "".join(part for _, part in segments)
    # What server.py does once the last letter has come, of which it reads no text.
    state, _ = TextStateMachine.discard(state)
    return text != "s", f"'sssto' with the stop string 'ssto': {text!r}"


def main():
    print(f"mlx-lm {version('mlx-lm')}")
    wrong = False
    for check in (goes_on, loses_text, loses_text_before_a_stop):
        bad, said = check()
        print(f"{check.__name__}: {said}: {'wrong' if bad else 'right'}")
        wrong |= bad
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
