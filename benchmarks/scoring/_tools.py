"""Prompts through another tool, in its own environment, to vLLM's server; called by compare.py."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def main() -> None:
    """Run the task of the first argument and write its figures."""
    task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    tool: Callable[[Row, list[Row]], list[str]] = {
        "distilabel": distilabel,
        "DataDesigner": data_designer,
    }[task["path"]]
    figures = []
    for n, requests in enumerate(task["runs"]):
        asked = requests if n else requests[:4]
        clock, cpu = time.perf_counter(), processor_seconds(task["server"])
        answers = tool(task, asked)
        seconds, cpu = time.perf_counter() - clock, processor_seconds(task["server"]) - cpu
        assert len(answers) == len(asked)
        if n:
            figures.append([len(asked) / seconds, len(asked) / cpu])
    valid = sum(a.strip() in r["options"] for a, r in zip(answers, asked, strict=True))
    found = {"figures": figures, "valid": valid / len(asked)}
    Path(task["out"]).write_text(json.dumps(found), encoding="utf-8")


def processor_seconds(server: int) -> float:
    """Processor time of this process, the server's and its children's."""
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            fields = path.read_text(encoding="utf-8").rsplit(")", 1)[1].split()
            stats[int(path.parent.name)] = int(fields[1]), int(fields[11]) + int(fields[12])
    found = {server}
    while more := {pid for pid, (parent, _) in stats.items() if parent in found} - found:
        found |= more
    ticks = sum(stats[pid][1] for pid in found if pid in stats)
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def distilabel(task: Row, requests: list[Row]) -> list[str]:
    from distilabel.models import OpenAILLM

    llm = OpenAILLM(model="bench", base_url=task["address"], api_key="none", timeout=600)
    llm.load()

    async def ask() -> list[Any]:
        return await asyncio.gather(
            *(
                llm.agenerate(
                    input=r["messages"], max_new_tokens=1, temperature=0.0,
                    logprobs=True, top_logprobs=20,
                )
                for r in requests
            )
        )  # fmt: skip

    return [found["generations"][0] or "" for found in asyncio.run(ask())]


def data_designer(task: Row, requests: list[Row]) -> list[str]:
    import data_designer.config as dd
    import pandas as pd
    from data_designer.interface import DataDesigner

    provider = dd.ModelProvider(name="here", endpoint=task["address"], api_key="none")
    model = dd.ModelConfig(
        alias="rater",
        model="bench",
        provider="here",
        skip_health_check=True,
        inference_parameters=dd.ChatCompletionInferenceParams(
            temperature=0.0, max_tokens=1, max_parallel_requests=256, timeout=600
        ),
    )
    prompts = ["\n\n".join(m["content"] for m in r["messages"]) for r in requests]
    builder = dd.DataDesignerConfigBuilder(model_configs=[model])
    builder.with_seed_dataset(
        dd.DataFrameSeedSource(df=pd.DataFrame({"asked": prompts, "n": range(len(prompts))}))
    )
    builder.add_column(
        dd.LLMTextColumnConfig(name="answer", prompt="{{ asked }}", model_alias="rater")
    )
    with tempfile.TemporaryDirectory() as place:
        tool = DataDesigner(artifact_path=place, model_providers=[provider])
        made = tool.create(builder, num_records=len(prompts)).load_dataset()
    return [str(a) for a in made.sort_values("n")["answer"]]


if __name__ == "__main__":
    main()
