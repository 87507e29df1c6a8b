"""mlx-openai-server 1.8.1: of a stop string of two tokens the first stays in the text.

app/core/batch_scheduler.py:817 leaves out the token at which the generator stops, which is the last
one of the stop string: those before it have been passed on. usage.completion_tokens counts all.
"""

from tiny_server import asked, prompt, served, verdict

with served() as client:
    text = prompt(10, seed=1)
    words = asked(client, text)[0].split()
    got = asked(client, text, stop=[" ".join(words[4:6])])[0]
verdict("the text before a stop string of two tokens", words[:4], got.split())
