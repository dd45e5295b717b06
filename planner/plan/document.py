"""A plan as JSON, for scripts."""

from __future__ import annotations

from typing import Any

from planner.plan.fleet import PlannedFleet, PlannedPool
from planner.plan.planning import Plan


def document(plan: Plan) -> dict[str, Any]:
    """Times in seconds, shares from 0 to 1, dollars an hour."""
    targets = plan.asked.targets
    form = plan.closed_form
    return {
        "requests_per_second": plan.asked.rate,
        "targets": {
            "ttft_seconds": targets.ttft_seconds,
            "tpot_seconds": targets.tpot_seconds,
            "utilisation": targets.utilisation,
            "availability": targets.availability,
        },
        "simulated": plan.is_tried,
        "fleet": _fleet(plan.fleet),
        "others": [_fleet(fleet) for fleet in plan.others],
        "baselines": {
            name: None if fleet is None else _fleet(fleet) | {"saving": plan.saving(fleet)}
            for name, fleet in (("one_pool", plan.honest), ("papers", plan.papers))
        },
        "closed_form": None
        if form is None
        else {"bound": form.bound, "alpha": form.alpha, "rho": form.rho, "saving": form.saving},
        "by_bound": [
            {"bound": bound, "dollars_per_hour": fleet.dollars_per_hour, "instances": fleet.instances}
            for bound, fleet in plan.by_bound
        ],
    }


def _fleet(fleet: PlannedFleet) -> dict[str, Any]:
    return {
        "bounds": list(fleet.bounds),
        "instances": fleet.instances,
        "gpus": fleet.gpus,
        "dollars_per_hour": fleet.dollars_per_hour,
        "kilowatts": fleet.kilowatts,
        "pools": [_pool(pool) for pool in fleet.pools],
    }


def _pool(pool: PlannedPool) -> dict[str, Any]:
    size = pool.size
    return {
        "tier": pool.tier,
        "above_tokens": pool.above,
        "up_to_tokens": pool.up_to,
        "share": pool.share,
        "instances": size.instances,
        "engine": size.engine.name,
        "format": size.engine.quantization,
        "gpus_each": size.engine.gpus,
        "max_context": size.engine.max_context,
        "max_sequences": size.engine.max_sequences,
        "token_budget": size.token_budget,
        "dollars_per_hour": size.dollars_per_hour,
        "busy": size.busy,
        "ttft_p99_seconds": size.ttft_seconds,
        "tpot_seconds": size.tpot_seconds,
        "source": size.engine.source,
    }
