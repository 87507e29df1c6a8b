"""A foreign engine: decodes exported vectors with Hugging Face transformers in left-padded batches.

    conformance golden export vectors --family llama --scenario ragged
    python decode.py vectors trace.jsonl
    conformance golden judge trace.jsonl --vectors vectors

It knows nothing of mlx-conformance but the files of the vectors. It is a static batch: all requests
begin at once, none joins later; schedules that ask for more are named and left out. ``--plant``
puts one of two classic defects in, so that one can see how they are reported.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import torch
import transformers
from safetensors.torch import load_file

TOP = 20
PLANTS = ("no-mask", "no-position-ids")
Row = dict[str, Any]


def load_model(folder: Path, dtype: str) -> Any:
    """The checkpoint as transformers builds it; every parameter must be there."""
    weights = load_file(folder / "model.safetensors")
    config = transformers.AutoConfig.from_pretrained(folder)
    config.tie_word_embeddings = "lm_head.weight" not in weights
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    lost = model.load_state_dict(weights, strict=False)
    missing = [name for name in lost.missing_keys if name != "lm_head.weight"]
    if missing or lost.unexpected_keys:
        raise SystemExit(f"{folder}: parameters do not fit: {missing + lost.unexpected_keys}")
    model.tie_weights()
    return model.to(getattr(torch, dtype)).eval()


def why_not(schedule: Row) -> str:
    """Why a static batch cannot play the schedule; empty where it can."""
    requests = [request for arrival in schedule["arrivals"] for request in arrival["requests"]]
    options = schedule.get("options", {})
    if len(schedule["arrivals"]) > 1 or schedule.get("removals"):
        return "requests come or go while others decode"
    if options.get("completion_batch_size", len(requests)) < len(requests):
        return "requests wait for a slot"
    if options.get("prefill_step_size", 2048) < max(len(r["prompt"]) for r in requests):
        return "prefill in pieces"
    for name in ("sampler", "processors", "stop", "segments", "continues"):
        if any(name in request for request in requests):
            return f"requests with {name}"
    return ""


class Batch:
    """Rows that are decoded together: prompts padded on the left, one new column a step."""

    def __init__(self, model: Any, prompts: list[list[int]], plant: str | None) -> None:
        self.model, self.plant = model, plant
        width = max(map(len, prompts))
        pads = [width - len(prompt) for prompt in prompts]
        tokens = [[0] * pad + prompt for pad, prompt in zip(pads, prompts, strict=True)]
        self.tokens = torch.tensor(tokens)  # [rows, width]
        self.mask = torch.tensor([[0] * pad + [1] * (width - pad) for pad in pads])
        self.positions = (self.mask.cumsum(-1) - 1).clamp(min=0)
        self.cache: Any = None

    @torch.no_grad()
    def logprobs(self) -> torch.Tensor:
        """Of each row's next token, [rows, vocab]; the tokens fed last are in the cache then."""
        known: Row = {"attention_mask": self.mask, "position_ids": self.positions}
        if self.plant == "no-mask":
            known["attention_mask"] = torch.ones_like(self.mask)
        if self.plant == "no-position-ids" and self.cache is not None:
            del known["position_ids"]  # then transformers counts columns, padding included
        if self.cache is not None:
            known["past_key_values"] = self.cache
        out = self.model(input_ids=self.tokens, use_cache=True, **known)
        self.cache = out.past_key_values
        return torch.log_softmax(out.logits[:, -1].float(), dim=-1)

    def feed(self, tokens: list[int]) -> None:
        """Give each row its next token."""
        self.tokens = torch.tensor(tokens)[:, None]
        self.mask = torch.cat([self.mask, torch.ones_like(self.tokens)], dim=-1)
        self.positions = self.positions[:, -1:] + 1


def play(
    model: Any, requests: list[Row], forced: dict[str, list[int]] | None, plant: str | None
) -> Iterator[Row]:
    """The records of one run; ``forced`` are the goldens' tokens, or ``None`` to choose freely."""
    batch = Batch(model, [request["prompt"] for request in requests], plant)
    for step in range(max(request["max_tokens"] for request in requests)):
        table = batch.logprobs()
        chosen = table.argmax(dim=-1).tolist()
        for row, request in enumerate(requests):
            if step >= request["max_tokens"]:
                continue
            name = request["request_id"]
            if forced is not None:
                chosen[row] = forced[name][step]
            values, ids = table[row].topk(TOP)
            finite = [value if abs(value) < float("inf") else None for value in values.tolist()]
            yield {
                "record": "token",
                "request_id": name,
                "step": step,
                "token": chosen[row],
                "top": list(zip(ids.tolist(), finite, strict=True)),
                "forced": forced is not None,
                "row": row,
            }
            if step + 1 == request["max_tokens"]:
                yield {"record": "finish", "request_id": name, "reason": "length"}
        batch.feed(chosen)
    yield {"record": "end"}


def play_family(family: str, folder: Path, dtype: str, plant: str | None, out: TextIO) -> None:
    """Every schedule of the family that a static batch can play, forced and free."""
    model = load_model(folder / family / "model", dtype)
    golden = json.loads((folder / family / "golden.json").read_text())
    streams = {one["request"]["request_id"]: one["tokens"] for one in golden["requests"]}
    names = json.loads((folder / "manifest.json").read_text())["families"][family]["scenarios"]
    for scenario in names:
        file = json.loads((folder / family / f"{scenario}.json").read_text())
        for exported in file["schedules"]:
            schedule = exported["schedule"]
            if reason := why_not(schedule):
                print(f"{family}/{scenario}/{schedule['name']} left out: {reason}")
                continue
            requests = schedule["arrivals"][0]["requests"]
            fed = {name: streams[key] for name, key in exported["golden"].items()}
            for forced in (fed, None):
                header = {
                    "record": "header",
                    "format": 1,
                    "engine": "torch",
                    "device": "cpu",
                    "dtype": dtype,
                    "family": family,
                    "scenario": scenario,
                    "schedule": schedule["name"],
                    "versions": {
                        "torch": torch.__version__,
                        "transformers": transformers.__version__,
                    },
                }
                for record in (header, *play(model, requests, forced, plant)):
                    print(json.dumps(record), file=out)


def main() -> None:
    """Play all families of the vectors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("vectors", type=Path)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--plant", choices=PLANTS)
    given = parser.parse_args()
    manifest = json.loads((given.vectors / "manifest.json").read_text())
    with given.trace.open("w") as out:
        for family in manifest["families"]:
            play_family(family, given.vectors, manifest["dtype"], given.plant, out)


if __name__ == "__main__":
    main()
