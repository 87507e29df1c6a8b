"""A foreign engine without any adapter: plays exported vectors on mlx-lm's own BatchGenerator.

    conformance golden export vectors --family llama --scenario staggered
    python decode.py vectors trace.jsonl
    conformance golden judge trace.jsonl --vectors vectors

It knows nothing of mlx-conformance but the files of the vectors. Requests come and go as the
schedules say; what else a schedule may ask for is named and left out.
"""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.utils import load_model

TOP = 20
Row = dict[str, Any]
# `mlx_lm.generate` as an attribute is the function of that name.
generate = importlib.import_module("mlx_lm.generate")


class Play:
    """One free run of one schedule."""

    def __init__(self, model: Any, schedule: Row) -> None:
        options = schedule.get("options", {})
        self.generator = generate.BatchGenerator(model, **options)
        self.due = [*schedule["arrivals"], *schedule.get("removals", [])]
        self.names: dict[int, str] = {}
        self.stage: dict[str, str] = {}
        self.count: dict[tuple[str, str], int] = {}
        self.records: list[Row] = []

    def run(self) -> list[Row]:
        """All records between header and end."""
        self.fire()
        while set(self.stage.values()) - {"finished", "removed"}:
            self.step()
            self.fire()
        self.records.append({"record": "end", "cache_bytes": self.generator.prompt_cache_nbytes})
        self.generator.close()
        return self.records

    def fire(self) -> None:
        """Let come and go what is due; one can make another due."""
        while item := next((one for one in self.due if self.reached(one["when"])), None):
            self.due.remove(item)
            if "requests" in item:
                self.insert(item["requests"])
                names = [request["request_id"] for request in item["requests"]]
                stage, record = "queued", "arrived"
            else:
                names = item["request_ids"]
                stage, record = "removed", "removed"
                self.generator.remove([u for u, name in self.names.items() if name in names])
            self.stage |= dict.fromkeys(names, stage)
            self.records.append({"record": record, "request_ids": names})

    def reached(self, when: Row) -> bool:
        """Whether a trigger fires now. Left-out fields have the defaults of the schema."""
        name = when.get("request_id")
        if name is None:
            return True
        stage, count = when.get("stage", "decode"), when.get("count", 0)
        return self.stage.get(name) == stage and self.count.get((name, stage), 0) >= count

    def insert(self, requests: list[Row]) -> None:
        """All requests of one arrival in one call."""
        stops = [generate.StopSequences(request.get("stop", [])) for request in requests]
        uids = self.generator.insert(
            [request["prompt"] for request in requests],
            max_tokens=[request["max_tokens"] for request in requests],
            **({"stop_sequences": stops} if any("stop" in r for r in requests) else {}),
        )
        names = [request["request_id"] for request in requests]
        self.names |= dict(zip(uids, names, strict=True))

    def step(self) -> None:
        """One call of the library, and a record for each token that came out."""
        prompts, responses = self.generator.next()
        for response in prompts:
            name = self.names[response.uid]
            self.stage[name] = "prefill"
            self.count[name, "prefill"] = response.progress[0]
        for response in responses:
            name = self.names[response.uid]
            self.stage[name] = "decode"
            step = self.count.get((name, "decode"), 0)
            self.count[name, "decode"] = step + 1
            row = np.array(response.logprobs.astype(mx.float32))  # [vocab]
            best = np.argsort(-row)[:TOP].tolist()
            top = [(i, float(row[i]) if np.isfinite(row[i]) else None) for i in best]
            token = {"request_id": name, "step": step, "token": int(response.token), "top": top}
            self.records.append({"record": "token", **token})
            if response.finish_reason is not None:
                self.stage[name] = "finished"
                reason = response.finish_reason
                self.records.append({"record": "finish", "request_id": name, "reason": reason})


def why_not(schedule: Row) -> str:
    """What the schedule asks for that this program does not do; empty where there is nothing."""
    requests = [request for arrival in schedule["arrivals"] for request in arrival["requests"]]
    if "prefix_caching" in schedule.get("options", {}):
        return "prefix_caching"
    wanted = ("sampler", "processors", "segments", "continues")
    return next((name for name in wanted if any(name in one for one in requests)), "")


def main() -> None:
    """Play all schedules of all families of the vectors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("vectors", type=Path)
    parser.add_argument("trace", type=Path)
    given = parser.parse_args()
    manifest = json.loads((given.vectors / "manifest.json").read_text())
    lines: list[Row] = []
    for family, there in manifest["families"].items():
        model, _ = load_model(given.vectors / family / "model", strict=True)
        for scenario in there["scenarios"]:
            file = json.loads((given.vectors / family / f"{scenario}.json").read_text())
            for exported in file["schedules"]:
                schedule = exported["schedule"]
                if reason := why_not(schedule):
                    print(f"{family}/{scenario}/{schedule['name']} left out: {reason}")
                    continue
                header = {
                    "record": "header",
                    "format": 1,
                    "engine": "plain_mlx_lm",
                    "device": str(mx.default_device()),
                    "dtype": manifest["dtype"],
                    "family": family,
                    "scenario": scenario,
                    "schedule": schedule["name"],
                }
                lines += [header, *Play(model, schedule).run()]
    given.trace.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
