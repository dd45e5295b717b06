"""What operators do to a model's calibration, for all control planes: forget it, keep it as it is, let it go on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from controlplane.calibration_messages import calibrations_message
from controlplane.errors import UnavailableError, UnknownModelError
from controlplane.estimation.calibrator import Calibrator
from controlplane.estimation.codec import decode_control
from controlplane.estimation.keys import EstimationKeys
from controlplane.estimation.replicas import Replicas
from controlplane.estimation.showing import check_known, known_models
from controlplane.etcd.client import EtcdClient
from controlplane.etcd.records import mod_revision_is, put
from controlplane.messages import timestamp
from controlplane.policy.estimator import Calibrations
from headrace_protos.headrace.v1 import calibration_pb2

_log = logging.getLogger(__name__)

_MOST_RACES = 20

Change = Callable[[calibration_pb2.CalibrationControl], None]


class Controls:
    """Every method raises UnknownModelError for a model that it cannot be done to, and UnavailableError when etcd does
    not answer. `served` gives the models of the fleet, `clock` Unix seconds."""

    def __init__(
        self,
        client: EtcdClient,
        keys: EstimationKeys,
        replicas: Replicas,
        calibrator: Calibrator,
        *,
        served: Callable[[], Collection[str]],
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._keys = keys
        self._replicas = replicas
        self._calibrator = calibrator
        self._served = served
        self._clock = clock

    async def reset(self, model: str) -> int:
        """Forgets what is learned of the model; the number of its generation."""
        self._check(model)

        def change(control: calibration_pb2.CalibrationControl) -> None:
            control.generation += 1

        control = await self._change(model, change)
        _log.warning("calibration reset model=%s generation=%d", model, control.generation)
        return control.generation

    async def pin(self, model: str) -> list[str]:
        """Keeps what the model's tokens are estimated by now; the categories of which something is learned."""
        self._check(model)
        told = self._calibrator.told.value
        kept = {key: calibration for key, calibration in told.learned.items() if key[0] == model}
        message = calibrations_message(Calibrations(kept))

        def change(control: calibration_pb2.CalibrationControl) -> None:
            control.pinned.CopyFrom(message)
            control.pinned_at.CopyFrom(timestamp(self._clock()))

        await self._change(model, change)
        _log.warning("calibration pinned model=%s", model)
        return sorted(category for _, category in kept)

    async def unpin(self, model: str) -> None:
        """Lets the estimates follow what is learned."""
        pinned = sorted(name for name, control in self._replicas.controls.items() if control.HasField("pinned_at"))
        if model not in pinned:
            raise UnknownModelError(f"the calibration of {model!r} is not pinned", model, pinned)

        def change(control: calibration_pb2.CalibrationControl) -> None:
            control.ClearField("pinned")
            control.ClearField("pinned_at")

        await self._change(model, change)
        _log.warning("calibration unpinned model=%s", model)

    def _check(self, model: str) -> None:
        check_known(model, known_models(self._replicas, self._served()))

    async def _change(self, model: str, change: Change) -> calibration_pb2.CalibrationControl:
        key = self._keys.model(model)
        for _ in range(_MOST_RACES):
            record = await self._client.get(key)
            control = (decode_control(record) if record else None) or calibration_pb2.CalibrationControl()
            change(control)
            unchanged = mod_revision_is(key, record.mod_revision if record else 0)
            if (await self._client.transact([unchanged], [put(key, control.SerializeToString())])).succeeded:
                return control
        raise UnavailableError(f"the calibration of {model} is changed all the time; try again")
