-- Decisions, one row per request in partitions of one day of UTC, which the control planes make and drop. What filters
-- look at stands by itself and in numbers, so that it is quickly looked through; headrace_decisions shows all as people
-- read it.

-- Texts that recur. `used` is when one was last known to be in use, to within a day.
CREATE TABLE headrace_text (
    code integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    text text NOT NULL UNIQUE,
    used timestamptz NOT NULL
);

-- Of the columns named as texts, each holds a code; `reasons` that of all of them, each between blanks. `request` and
-- `session` are hashes, 0 for none.
CREATE TABLE headrace_decision (
    recorded timestamptz NOT NULL,
    recorder bigint NOT NULL,
    status smallint NOT NULL,
    model integer NOT NULL,
    pool integer NOT NULL,
    tier integer NOT NULL,
    tenant integer NOT NULL,
    verdict integer NOT NULL,
    reasons integer NOT NULL,
    session bigint NOT NULL,
    request bigint NOT NULL,
    PRIMARY KEY (recorded, recorder)
) PARTITION BY RANGE (recorded);

CREATE INDEX headrace_decision_by_request ON headrace_decision (request);
CREATE INDEX headrace_decision_by_session ON headrace_decision (session, recorded) WHERE session <> 0;
CREATE INDEX headrace_decision_by_tenant ON headrace_decision (tenant, recorded);
CREATE INDEX headrace_decision_by_error ON headrace_decision (recorded) WHERE status = 0 OR status >= 400;

-- The rest of each. `message` is all of it, as headrace.v1.RecordedDecision, deflated (controlplane/ledger/compact.py).
CREATE TABLE headrace_decision_detail (
    recorded timestamptz NOT NULL,
    recorder bigint NOT NULL,
    session text NOT NULL,
    request_id text NOT NULL,
    endpoint text NOT NULL,
    action text NOT NULL,
    pinned text NOT NULL,
    stream boolean NOT NULL,
    score double precision,
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

CREATE VIEW headrace_decisions AS
SELECT
    recorded,
    recorder,
    status,
    (SELECT text FROM headrace_text WHERE code = d.model) AS model,
    (SELECT text FROM headrace_text WHERE code = d.pool) AS pool,
    (SELECT text FROM headrace_text WHERE code = d.tier) AS tier,
    (SELECT text FROM headrace_text WHERE code = d.tenant) AS tenant,
    (SELECT text FROM headrace_text WHERE code = d.verdict) AS verdict,
    (SELECT string_to_array(btrim(text), ' ') FROM headrace_text WHERE code = d.reasons) AS reasons,
    t.session, request_id, endpoint, action, pinned, stream, score, budget_prompt_tokens, budget_output_tokens, cluster,
    upstream, node_id, started, duration, first_byte, prompt_tokens, completion_tokens, attempts, flags
FROM headrace_decision AS d JOIN headrace_decision_detail AS t USING (recorded, recorder);

COMMENT ON VIEW headrace_decisions IS
    'Decisions of Headrace and what became of the requests; durations are in seconds, status 0 is a client that left';
