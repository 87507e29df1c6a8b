"""rapid-mlx 0.16.10: ``"stream": "yes"`` is taken; the API's field is true or false."""

from tiny_server import prompt, served, verdict

with served() as client:
    body = {"model": client.model, "max_tokens": 2, "stream": "yes"}
    body["messages"] = [{"role": "user", "content": prompt(10, seed=1)}]
    status = client.post("/v1/chat/completions", json=body).status_code
verdict("the status of a request whose stream is a text", 400, status)
