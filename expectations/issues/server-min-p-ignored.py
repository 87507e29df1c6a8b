# python -m mlx_vlm.server --model MODEL --port 8080
# python this_script.py http://127.0.0.1:8080 MODEL
import json
import sys
import urllib.request

URL, MODEL = sys.argv[1:]


def ask(**fields):
    messages = [{"role": "user", "content": "t5 t9 t33"}]
    body = {"model": MODEL, "messages": messages, "max_tokens": 8, **fields}
    data, head = json.dumps(body).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{URL}/v1/chat/completions", data, head)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


# A min_p of 1 leaves the likeliest token alone, so both are the same answer.
likeliest, drawn = ask(temperature=0.0), ask(temperature=2.0, min_p=1.0)
print("temperature 0.0:", likeliest)
print("temperature 2.0, min_p 1.0:", drawn)
sys.exit(likeliest != drawn)
