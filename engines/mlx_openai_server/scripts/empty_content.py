"""mlx-openai-server 1.8.1: a chat whose prompt has no token is answered with HTTP 500.

app/core/batch_scheduler.py:393 (submit_stream) raises a ValueError; app/handler/mlx_lm.py:1214
(generate_text_response) makes a server error of every exception.
"""

from tiny_server import served, verdict

with served() as client:
    body = {"model": client.model, "max_tokens": 4, "messages": [{"role": "user", "content": ""}]}
    code = client.post("/v1/chat/completions", json=body).status_code
verdict("HTTP status of a chat without a token", "4xx", f"{code // 100}xx")
