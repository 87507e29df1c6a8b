"""rapid-mlx 0.16.10: an answer that fills the model's context is thrown away.

rapid_mlx/service/helpers.py:5541 (context_window_exhausted) makes an error of an answer that
ended with "length" there, though the tokens up to it are right; a stream ends with an error and
no finish_reason.
"""

from tiny_server import asked, prompt, served, verdict

with served() as client:
    said, reason, _, error = asked(client, prompt(10, seed=1), max_tokens=100)
got = (len((said or "").split()), reason, (error or {}).get("code"))
verdict("10 tokens and an answer to the end of a context of 64", (54, "length", None), got)
