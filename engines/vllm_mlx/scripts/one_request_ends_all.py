"""vllm-mlx 0.6.0: an empty prompt ends every request that runs.

scheduler.py:2096 (add_request) does not look at the prompt. mlx-lm's generator raises, and
scheduler.py:3297 answers any exception by aborting all running requests. Default settings.
"""

from tiny_llama import Request, engine, fresh, greedy, tiny_llama, tokens, verdict
from vllm_mlx.mlx_streams import bind_generation_streams

model = tiny_llama()
prompt = tokens(20, seed=2)
core = engine(model)
core.scheduler.add_request(Request("good", prompt, greedy(12)))
bind_generation_streams()
got, reasons = [], []
for step in range(40):
    if step == 3:
        core.scheduler.add_request(Request("empty", [], greedy(4)))
    for output in core.scheduler.step().outputs:
        if output.request_id == "good":
            got += output.new_token_ids
            reasons += [output.finish_reason] if output.finished else []
right = (fresh(model, prompt, greedy(12)), ["length"])
verdict("a request beside one with an empty prompt", right, (got, reasons))
