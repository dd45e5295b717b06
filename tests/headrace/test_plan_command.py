from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controlplane.config.load import load
from controlplane.errors import ConfigurationError
from headrace.cli import app

RUN = CliRunner()
SMALL = ["plan", "azure-2023", "--requests", "2000", "--gpu", "H100", "--gpus", "4", "--rate", "50"]


def test_a_fleet_is_planned_from_a_shipped_summary_without_any_file(tmp_path: Path) -> None:
    found, drawn, written = (tmp_path / name for name in ("plan.json", "plan.png", "plan.yaml"))
    result = RUN.invoke(
        app, [*SMALL, "--tolerant", "0.6", "--json", str(found), "--png", str(drawn), "--yaml", str(written)]
    )

    assert result.exit_code == 0, result.output
    assert "CC-BY 4.0" in result.output
    assert "against one pool, set up as well as it can be" in result.output
    plan = json.loads(found.read_text())
    assert plan["requests_per_second"] == pytest.approx(50)
    assert sum(pool["share"] for pool in plan["fleet"]["pools"]) == pytest.approx(1)
    assert load(written.read_text(), "plan.yaml").policy.context_classes
    assert drawn.stat().st_size > 10_000


def test_a_trace_is_planned_for_by_its_path(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = "\n".join(f"2023-11-16 18:00:{second:02}.0000000,{200 + second},50" for second in range(60))
    trace.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}\n")
    result = RUN.invoke(app, ["plan", str(trace), "--gpu", "H100", "--gpus", "8"])

    assert result.exit_code == 0, result.output
    assert "1 requests/s" in result.output


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["plan", "azure"], "none of the summaries"),
        ([*SMALL, "--model", "GPT-9"], "model 'GPT-9' is not in the catalogue"),
        ([*SMALL, "--max-tokens", "many"], "give own, actual, p99, absent"),
        ([*SMALL, "--price", "H100"], "write GPU=DOLLARS"),
        (["plan", "--gpu", "A10G", "--gpus", "1", "--format", "fp16"], "leave no memory for a KV cache"),
    ],
)
def test_what_cannot_be_planned_is_told(options: list[str], fault: str) -> None:
    result = RUN.invoke(app, options)

    assert isinstance(result.exception, ConfigurationError)
    assert fault in str(result.exception)


def test_a_price_of_ones_own_changes_what_is_cheapest() -> None:
    both = ["plan", "lmsys", "--requests", "2000", "--rate", "100", "--gpu", "H100", "--gpu", "A100", "--gpus", "8"]
    usual, cheap_a100 = (RUN.invoke(app, [*both, *more]) for more in ([], ["--price", "A100=0.10"]))

    assert "on 8 x H100" in usual.output.split("against")[0]
    assert "on 8 x A100" in cheap_a100.output.split("against")[0]
