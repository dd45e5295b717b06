"""What is learned, for people: the accuracy of each model's estimates, as messages."""

from __future__ import annotations

from collections.abc import Collection

from controlplane.calibration_messages import calibration_message
from controlplane.estimation.calibrator import Calibrator
from controlplane.estimation.replicas import Replicas
from controlplane.learning.accuracy import Accuracy, report
from controlplane.learning.statistics import Statistics
from controlplane.policy.estimator import Calibrations
from headrace_protos.headrace.v1 import calibration_pb2


def show(
    replicas: Replicas, calibrator: Calibrator, served: Collection[str], model: str
) -> calibration_pb2.GetCalibrationResponse:
    """Of one model, or of all when its name is empty. As of the last calibration, which is some seconds old at most."""
    names = sorted({*served, *replicas.models})
    return calibration_pb2.GetCalibrationResponse(
        models=[_model(name, replicas, calibrator) for name in names if model in ("", name)],
        usage=calibrator.tally.messages(),
    )


def _model(name: str, replicas: Replicas, calibrator: Calibrator) -> calibration_pb2.ModelCalibration:
    merged = calibrator.merged.get(name, Statistics())
    control = replicas.controls.get(name)
    sums = merged.models.get(name)
    return calibration_pb2.ModelCalibration(
        model=name,
        generation=replicas.generation_of(name),
        pinned_at=control.pinned_at if control is not None and control.HasField("pinned_at") else None,
        refused=sums.refused if sums is not None else 0,
        categories=[_category(accuracy, calibrator.told.value) for accuracy in report(merged)],
    )


def _category(accuracy: Accuracy, told: Calibrations) -> calibration_pb2.CategoryAccuracy:
    in_force = told.learned.get((accuracy.model, accuracy.category))
    return calibration_pb2.CategoryAccuracy(
        category=accuracy.category,
        samples=accuracy.samples,
        ratio=accuracy.ratio,
        deviation=accuracy.deviation,
        bias=accuracy.bias,
        p50_error=accuracy.p50,
        p95_error=accuracy.p95,
        p99_error=accuracy.p99,
        short_share=accuracy.short,
        mis_routed=[
            calibration_pb2.MisRouted(
                threshold=each.threshold, too_small_share=each.too_small, too_large_share=each.too_large
            )
            for each in accuracy.mis_routed
        ],
        convergence=[
            calibration_pb2.Convergence(samples=samples, error=error) for samples, error in accuracy.converged
        ],
        in_force=calibration_message(accuracy.model, accuracy.category, in_force) if in_force is not None else None,
    )
