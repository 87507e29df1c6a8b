"""mlx-openai-server 1.8.1: an answer that its limit cuts says that it ended by itself.

app/api/endpoints.py:962 (handle_stream_response) and :1151, :1179 (format_final_response) write
"stop", or "tool_calls"; the finish reason of the generator is not passed on.
"""

from tiny_server import asked, prompt, served, verdict

with served() as client:
    got = [asked(client, prompt(10, seed=1), stream=on)[:2] for on in (False, True)]
reasons = [reason for _, reason in got]
verdict("how an answer of 8 tokens, the limit, ended", ["length", "length"], reasons)
