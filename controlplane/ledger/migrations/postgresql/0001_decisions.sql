-- One row per request, in partitions of one day of UTC, which the control planes make and drop.

CREATE TABLE headrace_decision (
    recorded timestamptz NOT NULL,
    recorder bigint NOT NULL,
    status smallint NOT NULL,
    model text NOT NULL,
    pool text NOT NULL,
    tier text NOT NULL,
    tenant text NOT NULL,
    verdict text NOT NULL,
    reasons text[] NOT NULL,
    session text NOT NULL,
    request_id text NOT NULL,
    endpoint text NOT NULL,
    action text NOT NULL,
    pinned text NOT NULL,
    stream boolean NOT NULL,
    score real,
    budget_prompt_tokens bigint,
    budget_output_tokens bigint,
    cluster text NOT NULL,
    upstream text NOT NULL,
    node_id text NOT NULL,
    started timestamptz NOT NULL,
    duration double precision NOT NULL,
    first_byte double precision,
    prompt_tokens bigint,
    completion_tokens bigint,
    attempts bigint NOT NULL,
    flags text[] NOT NULL,
    PRIMARY KEY (recorded, recorder)
) PARTITION BY RANGE (recorded);

COMMENT ON TABLE headrace_decision IS
    'Decisions of Headrace and what became of the requests; durations are in seconds, status 0 is a client that left';

CREATE INDEX headrace_decision_by_request ON headrace_decision (request_id);
CREATE INDEX headrace_decision_by_session ON headrace_decision (session, recorded) WHERE session <> '';
CREATE INDEX headrace_decision_by_tenant ON headrace_decision (tenant, recorded);
CREATE INDEX headrace_decision_by_error ON headrace_decision (recorded) WHERE status = 0 OR status >= 400;

-- Each decision whole, as headrace.v1.RecordedDecision; apart, so that the other table stays quick to look through.
CREATE TABLE headrace_decision_message (
    recorded timestamptz NOT NULL,
    recorder bigint NOT NULL,
    message bytea NOT NULL,
    PRIMARY KEY (recorded, recorder)
) PARTITION BY RANGE (recorded);

-- Decisions that could not be written, by which control plane, when and why.
CREATE TABLE headrace_ledger_loss (
    began timestamptz NOT NULL,
    ended timestamptz NOT NULL,
    recorder bigint NOT NULL,
    cause text NOT NULL,
    decisions bigint NOT NULL,
    PRIMARY KEY (ended, recorder, cause)
);
