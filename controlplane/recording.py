"""All that is done with a request once it has ended: in this order, at once, and nothing of it waits for anything."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.crediting import Crediting
from controlplane.estimation.estimation import Estimation
from controlplane.ledger.composition import CompositionWatch
from controlplane.ledger.decision_log import DecisionLog
from controlplane.ledger.decisions import Decisions
from controlplane.ledger.sla import SlaWatch
from controlplane.metrics import ControlPlaneMetrics
from headrace_protos.headrace.v1 import decision_pb2


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

    def request_finished(self, recorded: decision_pb2.RecordedDecision) -> None:
        # Held until all have read them, since protobuf makes these objects anew for each who asks for them.
        parts = recorded.decision, recorded.outcome
        self.decisions.record(recorded)
        self.crediting.request_finished(recorded)
        self.metrics.request_finished(recorded)
        self.composition.request_finished(recorded)
        judged = self.sla.request_finished(recorded)
        self.metrics.request_judged(recorded, judged)
        self.decision_log.request_finished(recorded, judged)
        self.estimation.learn(recorded)
        del parts
