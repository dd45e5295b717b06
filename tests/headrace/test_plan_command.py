from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from controlplane.config.load import load
from controlplane.errors import ConfigurationError
from headrace.cli import app

# Whoever is first compiles the simulator, where no process before has.
pytestmark = pytest.mark.timeout(600)

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
        (["plan", "lmsys", "agent-heavy"], "a summary is a workload by itself"),
        ([*SMALL, "--max-tokens", "99999999999"], "give own, actual, p99, absent"),
        ([*SMALL, "--price", "H100"], "write GPU=DOLLARS"),
        ([*SMALL, "--price", "H100=0"], "above 0"),
        ([*SMALL, "--price", "H100=nan"], "above 0"),
        ([*SMALL, "--price", "L40S=1"], "L40S is not among H100; see --gpu"),
        ([*SMALL, "--png", "/"], "it is a folder"),
        (["plan", "--gpu", "A10G", "--gpus", "1", "--format", "fp16"], "leave no memory for a KV cache"),
    ],
)
def test_what_cannot_be_planned_is_told(options: list[str], fault: str) -> None:
    result = RUN.invoke(app, options)

    assert isinstance(result.exception, ConfigurationError)
    assert fault in str(result.exception)


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ("", "has no request with input and output tokens"),
        ("2023-11-16 18:00:00,100,20\n", "all requests arrive at one time, which has no rate"),
        ("1970-01-01,100,20\n2023-11-16 18:00:00,100,20\n", "times lie 54 years apart; are all of one unit and clock?"),
    ],
)
def test_a_trace_that_has_no_rate_is_told(rows: str, fault: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}")
    result = RUN.invoke(app, ["plan", str(trace)])

    assert isinstance(result.exception, ConfigurationError)
    assert fault in str(result.exception)


def test_a_trace_that_a_spreadsheet_wrote_is_read(tmp_path: Path) -> None:
    """With a mark of byte order, and lines that end as on Windows."""
    trace = tmp_path / "trace.csv"
    trace.write_bytes(
        b"\xef\xbb\xbfTIMESTAMP,ContextTokens,GeneratedTokens\r\n"
        b"2023-11-16 18:00:01,100,20\r\n2023-11-16 18:00:00,50,20\r\n"
    )
    result = RUN.invoke(app, ["plan", str(trace), "--gpu", "H100", "--gpus", "8", "--no-simulate"])

    assert result.exit_code == 0, result.output
    assert "2 requests of" in result.output


@pytest.mark.parametrize("option", ["--rate", "--ttft", "--tpot", "--kwh", "--tolerant", "--utilisation"])
@pytest.mark.parametrize("value", ["nan", "inf", "-1"])
def test_numbers_that_are_none_are_refused_as_mistakes_of_flags(option: str, value: str) -> None:
    assert RUN.invoke(app, [*SMALL, option, value]).exit_code == 2


def test_names_of_the_catalogue_are_of_any_case() -> None:
    quick = ["plan", "lmsys", "--requests", "1000", "--no-simulate", "--gpus", "8"]
    usual, lower = (
        RUN.invoke(app, [*quick, "--model", model, "--gpu", gpu, "--format", name])
        for model, gpu, name in (("Llama-3-70B", "H100", "fp16"), ("llama-3-70b", "h100", "FP16"))
    )

    assert lower.exit_code == 0, lower.output
    assert lower.output.replace("llama-3-70b", "Llama-3-70B") == usual.output


def test_the_fleet_is_readable_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.planning.console", lambda: Console(width=80))
    result = RUN.invoke(app, [*SMALL, "--tolerant", "0.5", "--no-simulate"])

    assert result.exit_code == 0, result.output
    assert "quantized 1-12288" in result.output
    assert "not shown: context, kW, occupied; a wider terminal has room" in result.output


def test_a_price_of_ones_own_changes_what_is_cheapest() -> None:
    both = ["plan", "lmsys", "--requests", "2000", "--rate", "100", "--gpu", "H100", "--gpu", "A100", "--gpus", "8"]
    usual, cheap_a100 = (RUN.invoke(app, [*both, *more]) for more in ([], ["--price", "A100=0.10"]))

    assert "on 8 x H100" in usual.output.split("against")[0]
    assert "on 8 x A100" in cheap_a100.output.split("against")[0]
