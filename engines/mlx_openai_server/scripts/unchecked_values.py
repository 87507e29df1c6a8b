"""mlx-openai-server 1.8.1: values outside their range, and text for true, are taken.

app/schemas/openai.py:271, :278, :279 and :310 give max_tokens, temperature, top_p and stream no
bounds and are not strict.
"""

from tiny_server import prompt, served, verdict

VALUES = {"max_tokens": -1, "temperature": -1.0, "top_p": 2.0, "stream": "no"}

with served() as client:
    body = {"model": client.model, "messages": [{"role": "user", "content": prompt(6, seed=1)}]}
    place = "/v1/chat/completions"
    given = {name: body | {"max_tokens": 4, name: value} for name, value in VALUES.items()}
    codes = {name: client.post(place, json=made).status_code for name, made in given.items()}
verdict("HTTP status of values that mean nothing", dict.fromkeys(VALUES, 422), codes)
