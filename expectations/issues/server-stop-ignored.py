# python -m mlx_vlm.server --model MODEL --port 8080
# python this_script.py http://127.0.0.1:8080 MODEL
import json
import sys
import urllib.request

URL, MODEL = sys.argv[1:]


def ask(**fields):
    messages = [{"role": "user", "content": "t5 t9 t33"}]
    body = {"model": MODEL, "messages": messages, "max_tokens": 8, "temperature": 0.0, **fields}
    data, head = json.dumps(body).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{URL}/v1/chat/completions", data, head)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


whole = ask()
stop = whole.split()[3]
cut = ask(stop=stop)
print("without stop:", whole)
print(f"with stop {stop!r}:", cut)
sys.exit(stop in cut)
