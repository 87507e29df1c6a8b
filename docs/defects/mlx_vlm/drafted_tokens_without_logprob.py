"""With a drafter every token is reported with a probability of 1.

SpeculativeGenerationBatch (mlx_vlm/generate/ar.py:1640 and :1695) gives ``token_logprob=0.0`` with
each token, also with the first one, which the model's own logits chose. The server hands it on to
clients that ask for logprobs (mlx_vlm/server/generation.py:2079). Fixed by the logprob of the
verified token, or None where it is not computed.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.generate.ar import SpeculativeGenerationBatch

MAX_TOKENS = 5


def main() -> int:
    logits = mx.array([[0.0, 1.0, 2.0, 2.5]])
    logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    chosen = mx.argmax(logprobs, axis=-1)
    expected = logprobs[0, chosen[0]].item()

    batch = SpeculativeGenerationBatch.__new__(SpeculativeGenerationBatch)
    batch._all_uids, batch.uids, batch._finished = [0], [0], [False]
    batch._num_tokens, batch.max_tokens = [0], [MAX_TOKENS]
    batch._sent_first, batch.first_tokens = False, chosen
    batch.stop_criteria = lambda _: False
    said = [batch.next()[0].token_logprob]
    drafted = []
    batch._append_token_responses(drafted, [2])
    said += [response.token_logprob for response in drafted]

    print(f"mlx-vlm {version('mlx-vlm')}: logprobs of tokens beside a drafter")
    print(f"of the first one, expected {expected:.3g} or None: {said[0]}")
    print(f"of an accepted one, of which no logits were given, expected None: {said[1]}")
    return 1 if 0.0 in said else 0


if __name__ == "__main__":
    sys.exit(main())
