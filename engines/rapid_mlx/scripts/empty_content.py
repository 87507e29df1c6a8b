"""rapid-mlx 0.16.10: a chat whose prompt has no token ends the answers of all others.

Nothing refuses a prompt of no tokens, as an empty content is where the template adds none:
rapid_mlx/scheduler.py:8647 (add_request) takes it, mlx-lm's generator raises IndexError
(mlx_lm/generate.py:1828), and rapid_mlx/scheduler.py:11719 (step) aborts whatever runs.
"""

from threading import Thread

from tiny_server import asked, prompt, served, verdict

with served() as client:
    body = {"model": client.model, "max_tokens": 40, "temperature": 0, "stream": True}
    body["messages"] = [{"role": "user", "content": prompt(10, seed=1)}]
    with client.stream("POST", "/v1/chat/completions", json=body) as lines:
        pieces = lines.iter_lines()
        next(pieces)
        empty = Thread(target=asked, args=(client, ""))
        empty.start()
        broken_off = any("engine_aborted" in piece for piece in pieces)
        empty.join()
verdict("a stream beside a chat of no tokens breaks off", right=False, got=broken_off)
