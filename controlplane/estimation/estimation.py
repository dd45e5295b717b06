"""One control plane's part in the token estimate, as a whole."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection

from controlplane.estimation.calibrator import Calibrator
from controlplane.estimation.controls import Controls
from controlplane.estimation.keys import EstimationKeys
from controlplane.estimation.lessons import Lesson
from controlplane.estimation.replicas import LEASE_SECONDS, Replicas
from controlplane.estimation.showing import show
from controlplane.etcd.client import EtcdClient
from controlplane.learning.statistics import Statistics
from controlplane.ledger.ended import Ended
from controlplane.policy.estimator import Calibrations
from controlplane.policy.settings import Policy
from headrace_protos.headrace.v1 import calibration_pb2


class Estimation:
    """As `Calibrator`. `keys` says where in etcd; a replica that is gone for `lease_seconds` is taken over."""

    def __init__(
        self,
        client: EtcdClient,
        keys: EstimationKeys,
        policy: Callable[[], Policy],
        served: Callable[[], Collection[str]],
        on_lesson: Callable[[Lesson, bool], None],
        *,
        lease_seconds: int = LEASE_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._served = served
        self._replicas = Replicas(client, keys, lease_seconds=lease_seconds, clock=clock)
        self._calibrator = Calibrator(self._replicas, policy, served, on_lesson, clock)
        self.controls = Controls(client, keys, self._replicas, self._calibrator, served=served, clock=clock)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._replicas.run())
            tasks.create_task(self._calibrator.run())

    def learn(self, ended: Ended) -> None:
        """From one entry of the access log."""
        self._calibrator.learn(ended)

    def told(self) -> Calibrations:
        """What filters are to estimate by, but for priors, which are the policy's."""
        return self._calibrator.told.value

    def merged(self) -> Statistics:
        """What all control planes have learned together, as of each model's last calibration."""
        of_models = self._calibrator.merged.values()
        return Statistics(models={name: sums for each in of_models for name, sums in each.models.items()})

    def usage(self) -> list[calibration_pb2.UsageCount]:
        """The answered requests since this process began, by what they taught."""
        return self._calibrator.tally.messages()

    def show(self, model: str) -> calibration_pb2.GetCalibrationResponse:
        """Of one model, or of all when its name is empty."""
        return show(self._replicas, self._calibrator, self._served(), model)
