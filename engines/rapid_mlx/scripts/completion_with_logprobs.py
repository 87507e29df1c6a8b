"""rapid-mlx 0.16.10: a completion that is asked for logprobs has another text.

rapid_mlx/routes/completions.py:704 (975 in streams) puts the text together of tokens that were
decoded one by one, so what lies between them is lost: here each blank. (In streams and in one
piece; chats are right.)
"""

from tiny_server import asked, prompt, served, verdict

with served() as client:
    text = prompt(10, seed=1)
    plain = asked(client, text, chat=False)[0]
    with_logprobs = asked(client, text, chat=False, logprobs=1)[0]
verdict("the text of a completion with logprobs", plain, with_logprobs)
