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
    request = urllib.request.Request(f"{URL}/v1/messages", data, head)
    with urllib.request.urlopen(request) as answer:
        return answer.read().decode()


stop = json.loads(ask())["content"][0]["text"].split()[3]
whole = json.loads(ask(stop_sequences=[stop]))
lines = ask(stop_sequences=[stop], stream=True).splitlines()
events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
text = "".join(event.get("delta", {}).get("text", "") for event in events)
print(f"stop_sequences: [{stop!r}], max_tokens: 8")
print("in one piece:", repr(whole["content"][0]["text"]), whole["usage"])
print("as a stream:", repr(text))
sys.exit(stop in text.split() or whole["usage"]["output_tokens"] == 8)
