# python -m mlx_vlm.server --model MODEL --port 8080
# python this_script.py http://127.0.0.1:8080 MODEL
import json
import sys
import urllib.request

URL, MODEL = sys.argv[1:]


def ask():
    messages = [{"role": "user", "content": "t5 t9 t33"}]
    body = {"model": MODEL, "messages": messages, "max_tokens": 12, "temperature": 2.0}
    data, head = json.dumps(body).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{URL}/v1/chat/completions", data, head)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


answers = [ask() for _ in range(4)]
print("four equal requests, temperature 2.0, no seed:")
print(*answers, sep="\n")
sys.exit(len(set(answers)) == 1)
