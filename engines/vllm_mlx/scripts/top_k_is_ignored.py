"""vllm-mlx 0.6.0: top_k and presence_penalty are taken and ignored.

scheduler.py:1521 makes the sampler of temperature, top_p and min_p; SamplingParams.top_k is read
nowhere in the scheduler, and of the penalties only repetition_penalty (line 2453). With top_k=1
every answer must be the greedy one. Default settings.
"""

from tiny_llama import fresh, greedy, mx, tiny_llama, tokens, verdict
from vllm_mlx.request import SamplingParams

model = tiny_llama()
prompt = tokens(20, seed=2)
mx.random.seed(0)
likeliest = SamplingParams(max_tokens=12, temperature=3.0, top_p=1.0, top_k=1)
verdict("top_k=1", fresh(model, prompt, greedy(12)), fresh(model, prompt, likeliest))
