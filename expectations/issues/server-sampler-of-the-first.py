# python -m mlx_vlm.server --model MODEL --port 8080
# python this_script.py http://127.0.0.1:8080 MODEL
import json
import sys
import urllib.request

URL, MODEL = sys.argv[1:]


def ask(text, **fields):
    body = {"model": MODEL, "messages": [{"role": "user", "content": text}], **fields}
    data, head = json.dumps(body).encode(), {"Content-Type": "application/json"}
    return urllib.request.urlopen(
        urllib.request.Request(f"{URL}/v1/chat/completions", data, head), timeout=300
    )


def greedy():
    with ask("t5 t9 t33", max_tokens=8, temperature=0.0) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


alone = greedy()
with ask("t3 t4", stream=True, max_tokens=1500, temperature=1.5, seed=1) as sampled:
    sampled.readline()  # the sampled request is being answered
    beside = greedy()
print("temperature 0, alone:", alone)
print("temperature 0, while a request with temperature 1.5 is answered:", beside)
sys.exit(alone != beside)
