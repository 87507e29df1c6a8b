"""vllm-mlx 0.6.0: temperature, top_p and min_p of the first request are those of all beside it.

scheduler.py:1771: while requests run, other parameters make a warning ("New requests will use
new parameters after current batch completes"), and line 2473 inserts the request all the same,
without a sampler of its own. So a greedy request beside a sampled one is sampled. Default
settings.
"""

from tiny_llama import Request, engine, fresh, greedy, mx, tiny_llama, tokens, verdict
from vllm_mlx.mlx_streams import bind_generation_streams
from vllm_mlx.request import SamplingParams

model = tiny_llama()
prompt = tokens(20, seed=2)
right = fresh(model, prompt, greedy(12))
mx.random.seed(0)
core = engine(model)
hot = SamplingParams(max_tokens=12, temperature=3.0, top_p=1.0)
core.scheduler.add_request(Request("hot", tokens(20, seed=1), hot))
core.scheduler.add_request(Request("greedy", prompt, greedy(12)))
bind_generation_streams()
got = []
while core.scheduler.has_requests():
    for output in core.scheduler.step().outputs:
        got += output.new_token_ids if output.request_id == "greedy" else []
verdict("a greedy request beside one of temperature 3", right, got)
