"""What is learned, for people: the accuracy of each model's estimates, as messages."""

from __future__ import annotations

from collections.abc import Collection

from controlplane.calibration_messages import calibration_message
from controlplane.errors import UnknownModelError
from controlplane.estimation.calibrator import Calibrator
from controlplane.estimation.replicas import Replicas
from controlplane.features import Category
from controlplane.learning.accuracy import Accuracy, report
from controlplane.learning.statistics import Statistics
from controlplane.policy.estimator import Calibration
from headrace_protos.headrace.v1 import calibration_pb2


def show(
    replicas: Replicas, calibrator: Calibrator, served: Collection[str], model: str
) -> calibration_pb2.GetCalibrationResponse:
    """Of one model, or of all when its name is empty. As of the last calibration, which is some seconds old at most.

    Raises UnknownModelError.
    """
    names = known_models(replicas, served)
    if model:
        check_known(model, names)
    return calibration_pb2.GetCalibrationResponse(
        models=[_model(name, replicas, calibrator) for name in names if model in ("", name)],
        usage=calibrator.tally.messages(),
    )


def known_models(replicas: Replicas, served: Collection[str]) -> list[str]:
    """Those that are served now, that something is learned of, or that an operator has set something for."""
    return sorted({*served, *replicas.models})


def check_known(model: str, known: Collection[str]) -> None:
    if model not in known:
        raise UnknownModelError(f"nothing is known of a model {model!r}", model, known)


def _model(name: str, replicas: Replicas, calibrator: Calibrator) -> calibration_pb2.ModelCalibration:
    merged = calibrator.merged.get(name, Statistics())
    control = replicas.controls.get(name)
    sums = merged.models.get(name)
    accuracies = {accuracy.category: accuracy for accuracy in report(merged)}
    in_force = {category: found for (model, category), found in calibrator.told.value.learned.items() if model == name}
    return calibration_pb2.ModelCalibration(
        model=name,
        generation=replicas.generation_of(name),
        pinned_at=control.pinned_at if control is not None and control.HasField("pinned_at") else None,
        refused=sums.refused if sums is not None else 0,
        categories=[
            _category(name, category, accuracies.get(category), in_force.get(category))
            for category in sorted({*accuracies, *in_force})
        ],
    )


def _category(
    model: str, category: Category, accuracy: Accuracy | None, calibration: Calibration | None
) -> calibration_pb2.CategoryAccuracy:
    in_force = calibration_message(model, category, calibration) if calibration is not None else None
    if accuracy is None:
        return calibration_pb2.CategoryAccuracy(category=category, in_force=in_force)
    return calibration_pb2.CategoryAccuracy(
        category=category,
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
        in_force=in_force,
    )
