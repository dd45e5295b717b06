"""Where statistics and what operators set for them lie in etcd, below a prefix such as `/headrace/calibration/v1/`.

    replicas/<replica>              empty; exists as long as the control plane that bears this name
    statistics/<replica>/<model>    what that control plane has learned of a model, see `codec`
    models/<model>                  generation and pin of a model, as `CalibrationControl`; absent for one never touched

A replica's key has a lease; statistics have none, and outlive the control plane that wrote them. Only the replica that
a key names writes it, as long as it lives. Then another one takes it over: it deletes the key and adds the statistics
to its own in one transaction, so that they are in exactly one place at any time.

This prefix is another one than the fleet's: statistics are large, and nobody who follows the fleet needs them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EstimationKeys:
    prefix: str = "/headrace/calibration/v1/"

    @property
    def replicas(self) -> str:
        return f"{self.prefix}replicas/"

    @property
    def statistics(self) -> str:
        return f"{self.prefix}statistics/"

    @property
    def models(self) -> str:
        return f"{self.prefix}models/"

    def replica(self, replica: str) -> str:
        return f"{self.replicas}{replica}"

    def statistics_of(self, replica: str, model: str) -> str:
        return f"{self.statistics}{replica}/{model}"

    def model(self, model: str) -> str:
        return f"{self.models}{model}"
