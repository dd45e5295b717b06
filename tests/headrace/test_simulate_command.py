from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from controlplane.errors import ConfigurationError
from headrace.cli import app

RUN = CliRunner()
POOL = "instances=2,gpu=H100,gpus=8,context=16384,sequences=64"
QUICK = ("--requests", "300", "--rate", "5")

# Whoever is first compiles the simulator, where no process before has.
pytestmark = pytest.mark.timeout(600)


def simulate(*arguments: object) -> Result:
    return RUN.invoke(app, ["simulate", *map(str, arguments)], env={"HEADRACE_CONFIG": ""})


def written(file: Path) -> Sequence[dict[str, object]]:
    """JSON of finite numbers alone, as every reader takes it."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    found: Sequence[dict[str, object]] = json.loads(file.read_text(), parse_constant=refuse)
    return found


def test_a_fleet_of_one_pool_is_simulated_and_told(tmp_path: Path) -> None:
    result = simulate("-p", POOL, *QUICK, "--seeds", 2, "--json", tmp_path / "a.json", "--png", tmp_path / "a.png")

    assert result.exit_code == 0, result.output
    assert "CC-BY 4.0" in result.output
    assert "model/full/long/on_demand" in result.output
    assert "not served in all courses: none" in result.output
    reports = written(tmp_path / "a.json")
    assert [report["seed"] for report in reports] == [1, 2]
    assert (tmp_path / "a.png").stat().st_size > 10_000


def test_the_same_seeds_give_the_same_figures(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.json", "b.json")]
    for file in files:
        assert simulate("-p", POOL, *QUICK, "--seeds", 2, "--json", file).exit_code == 0

    assert files[0].read_text() == files[1].read_text()
    first, second = written(files[0])
    assert first["whole"] != second["whole"]


def test_a_fleet_is_read_from_a_file_and_its_tiers_from_words(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(
        "pools:\n- {instances: 1, gpu: h100, context: 4096}\n- {instances: 2, gpu: A100, context: 16384}\n"
    )
    tiers = ("--tier", "guaranteed=1", "--tier", "best_effort=3")
    result = simulate("--fleet", fleet, *QUICK, *tiers, "--seeds", 1, "--json", tmp_path / "a.json")

    assert result.exit_code == 0, result.output
    (report,) = written(tmp_path / "a.json")
    assert [pool["name"] for pool in report["pools"]] == [  # type: ignore[attr-defined]
        "model/full/short/on_demand",
        "model/full/long/on_demand",
    ]
    assert set(report["tiers"]) == {"guaranteed", "best_effort"}  # type: ignore[call-overload]


def test_a_policy_of_ones_own_is_that_which_routes(tmp_path: Path) -> None:
    policy = tmp_path / "headrace.yaml"
    policy.write_text("policy:\n  context_classes:\n    - {name: small, max_context: 4096}\n    - {name: big}\n")
    result = simulate("-p", POOL, *QUICK, "--seeds", 1, "-c", policy)

    assert result.exit_code == 0, result.output
    assert "model/full/big/on_demand" in result.output


def test_what_a_fleet_without_anyone_to_serve_did_is_json_too(tmp_path: Path) -> None:
    """Every request is larger than the context."""
    result = simulate("-p", "context=2", *QUICK, "--seeds", 1, "--json", tmp_path / "a.json")

    assert result.exit_code == 0, result.output
    assert "nan" not in result.output
    (report,) = written(tmp_path / "a.json")
    assert report["whole"]["ttft"]["p99"] is None  # type: ignore[index]
    assert "engine refused" in result.output


def test_an_engine_computes_as_much_in_an_iteration_as_vllm_does_on_its_gpu() -> None:
    """8,192 tokens on large GPUs, 2,048 on A100 and on small ones, unless it is told."""
    from controlplane.policy.settings import Policy
    from headrace.simulating import build_fleet, read_pools

    words = read_pools(
        ("gpu=H100,context=512", "gpu=a100,context=1024", "gpu=L40S", "token_budget=777,context=99"), None
    )
    fleet = build_fleet(words, "Llama-3-8B", Policy(), own_classes=True)

    assert [pool.token_budget for pool in fleet.pools] == [8192, 2048, 2048, 777]


def test_four_bits_are_compared_for_each_gain(tmp_path: Path) -> None:
    file = tmp_path / "formats.json"
    words = ("formats", "--gain", 1.8, "--half", 1, "--sequences", 64, "--seeds", 1, "--json", file)
    result = simulate(*words)

    assert result.exit_code == 0, result.output
    (found,) = written(file)
    assert found["gain"] == 1.8
    assert 0.2 < found["over_all_full"] < 0.5  # type: ignore[operator]


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ((), "name them by --pool, or in a file by --fleet"),
        (("-p", "four"), "`four` must read name=value"),
        (("-p", "size=4"), "`size` is unknown; there are instances, gpu"),
        (("-p", "instances=0"), "`instances` must be a whole number from 1 on"),
        (("-p", "gpus=-1"), "`gpus` must be a whole number from 1 on"),
        (("-p", "gpu=Z9"), "GPU 'Z9' is not in the catalogue"),
        (("-p", "capacity=rented"), "`capacity` must be one of on_demand"),
        (("-p", "context=1000000"), "takes 131072 tokens; give it less"),
        (("-p", "context=1"), "a context holds 2 tokens at least"),
        (("-p", "sequences=1000000000"), "1,000,000,000 in all"),
        (("-p", "instances=1", "-p", "instances=2"), "need contexts that the policy's context_classes tell apart"),
        (("-p", POOL, "--tier", "gold=1"), "there are guaranteed, standard, best_effort"),
        (("-p", POOL, "--tier", "guaranteed=nan"), "with shares of at least 0"),
        (("-p", POOL, "--tier", "guaranteed=0"), "one of the shares must be above 0"),
        (("-p", POOL, "--rate", "0.001"), "347 days, and 40 can be simulated"),
        (("-p", POOL, "-w", "nothing"), "is no file, and none of the summaries"),
        (("-p", POOL, "-w", "lmsys", "-w", "azure-2023"), "a summary is a workload by itself"),
        (("-p", POOL, "--json", "/nowhere/a.json"), "there is no folder /nowhere"),
        (("-p", POOL, "--json", "/"), "it is a folder"),
        (("formats", "--model", "Llama-3-70B"), "leave no memory for a KV cache"),
    ],
)
def test_what_cannot_be_simulated_is_told(words: Sequence[str], fault: str) -> None:
    result = simulate(*words)

    assert isinstance(result.exception, ConfigurationError), result.output
    assert fault in str(result.exception)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("pools: [", "is no YAML"),
        ("pools: 4", "must hold a list `pools`"),
        ("pools: [4]", "pool 1: must hold fields"),
        ("pools: [{instances: .inf}]", "must be a whole number from 1 on, and is inf"),
        ("pools: [{instances: 2.5}]", "must be a whole number from 1 on, and is 2.5"),
    ],
)
def test_what_is_wrong_in_a_file_of_a_fleet_is_told(text: str, fault: str, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(text)
    result = simulate("--fleet", fleet)

    assert isinstance(result.exception, ConfigurationError), result.output
    assert fault in str(result.exception)


@pytest.mark.parametrize(
    "words",
    [
        ("-p", POOL, "--rate", "nan"),
        ("-p", POOL, "--rate", "inf"),
        ("-p", POOL, "--seeds", "0"),
        ("formats", "--gain", "0"),
        ("formats", "--gain", "nan"),
        ("formats", "--tolerant", "2"),
    ],
)
def test_numbers_that_are_out_of_bounds_are_refused_as_mistakes_of_flags(words: Sequence[str]) -> None:
    assert simulate(*words).exit_code == 2


@pytest.mark.parametrize("words", [("-p", POOL), ("formats",)])
def test_without_its_extra_it_says_what_to_install(words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "numba", None)
    result = simulate(*words)

    assert "pip install 'headrace[planner]'" in str(result.exception)
