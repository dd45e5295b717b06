"""All that is done with a request once it has ended: in this order, at once, and nothing of it waits for anything."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.crediting import Crediting
from controlplane.estimation.estimation import Estimation
from controlplane.ledger.composition import CompositionWatch
from controlplane.ledger.decision_log import DecisionLog
from controlplane.ledger.decisions import Decisions
from controlplane.ledger.ended import Ended
from controlplane.ledger.sla import SlaWatch
from controlplane.metrics import ControlPlaneMetrics


@dataclass(frozen=True, slots=True)
class Recording:
    """Those who are told of it."""

    decisions: Decisions
    crediting: Crediting
    metrics: ControlPlaneMetrics
    composition: CompositionWatch
    sla: SlaWatch
    decision_log: DecisionLog
    estimation: Estimation

    def request_finished(self, ended: Ended) -> None:
        self.decisions.record(ended)
        self.crediting.request_finished(ended)
        self.metrics.request_finished(ended)
        self.composition.request_finished(ended)
        judged = self.sla.request_finished(ended)
        self.metrics.request_judged(ended, judged)
        self.decision_log.request_finished(ended, judged)
        self.estimation.learn(ended)
