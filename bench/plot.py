"""The picture of docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from contestants import CONTESTANTS
from matplotlib import pyplot
from matplotlib.axes import Axes
from peers.direct import DIRECT
from peers.plain_envoy import PLAIN_ENVOY
from results import Result

_SHOWN = [each.name for each in CONTESTANTS if each not in {DIRECT, PLAIN_ENVOY}]
_COLOURS = ("#1b6ca8", "#8ec1e8", "#c9542c", "#f0b49b", "#3c8d5a", "#a9d6b8", "#777777", "#bbbbbb")
_LATENCY = "2 KB at 500/s"


def draw(results: Mapping[str, Result], to: Path) -> None:
    most = {name.removeprefix("most, "): each for name, each in results.items() if each.scenario.rate is None}
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(13, 5), width_ratios=(3, 2), layout="constrained")
    _bars(left, most)
    if _LATENCY in results:
        _added(right, results[_LATENCY])
    figure.savefig(to, dpi=110)
    pyplot.close(figure)


def _bars(axes: Axes, most: Mapping[str, Result]) -> None:
    width = 0.8 / len(_SHOWN)
    for number, (name, colour) in enumerate(zip(_SHOWN, _COLOURS, strict=False)):
        runs = [result.run_of(name, PLAIN_ENVOY.name) for result in most.values()]
        ratios = [(run.ratio(name, PLAIN_ENVOY.name) if run else None) or 0.0 for run in runs]
        at = [place + (number - (len(_SHOWN) - 1) / 2) * width for place in range(len(most))]
        axes.bar(at, ratios, width, color=colour, label=name)
    axes.set_xticks(range(len(most)), list(most))
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_ylabel("requests a second, times plain Envoy")
    axes.set_title("Throughput")
    axes.legend(fontsize=8, frameon=False)


def _added(axes: Axes, result: Result) -> None:
    runs = {name: run for name in _SHOWN if (run := result.run_of(name, PLAIN_ENVOY.name))}
    for share, colour, said in ((0.5, _COLOURS[0], "P50"), (0.99, _COLOURS[2], "P99")):
        added = [run.added(name, PLAIN_ENVOY.name, "whole", share) or 0.0 for name, run in runs.items()]
        at = [place + (0.2 if share > 0.5 else -0.2) for place in range(len(runs))]
        axes.barh(at, added, 0.4, color=colour, label=said)
    axes.set_yticks(range(len(runs)), list(runs), fontsize=8)
    axes.invert_yaxis()
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.set_xlabel("milliseconds more than plain Envoy")
    axes.set_title(f"Latency, {_LATENCY}")
    axes.legend(fontsize=8, frameon=False)
