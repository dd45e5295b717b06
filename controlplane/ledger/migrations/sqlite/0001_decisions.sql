-- Decisions are narrow, so that a million of them are looked through in a fraction of a second whatever is asked for:
-- texts that recur stand in `text` once, and the rest of each row is in its message.

-- `used` is when the text was last known to be in use, in Unix microseconds, to within a day.
CREATE TABLE text (
    code INTEGER PRIMARY KEY,
    text TEXT NOT NULL UNIQUE,
    used INTEGER NOT NULL
);

-- `recorded` is in Unix microseconds. Of the columns named as texts, each holds a code; `reasons` that of all of them,
-- each between blanks. `request` and `session` are hashes, 0 for none.
CREATE TABLE decision (
    recorded INTEGER NOT NULL,
    recorder INTEGER NOT NULL,
    status INTEGER NOT NULL,
    model INTEGER NOT NULL,
    pool INTEGER NOT NULL,
    tier INTEGER NOT NULL,
    tenant INTEGER NOT NULL,
    verdict INTEGER NOT NULL,
    reasons INTEGER NOT NULL,
    session INTEGER NOT NULL,
    request INTEGER NOT NULL,
    PRIMARY KEY (recorded, recorder)
) WITHOUT ROWID;

CREATE INDEX decision_by_request ON decision (request);
CREATE INDEX decision_by_session ON decision (session, recorded) WHERE session <> 0;
CREATE INDEX decision_by_tenant ON decision (tenant, recorded);
CREATE INDEX decision_by_error ON decision (recorded) WHERE status = 0 OR status >= 400;

-- Each decision whole, as headrace.v1.RecordedDecision, deflated (controlplane/ledger/compact.py).
CREATE TABLE message (
    recorded INTEGER NOT NULL,
    recorder INTEGER NOT NULL,
    message BLOB NOT NULL,
    PRIMARY KEY (recorded, recorder)
) WITHOUT ROWID;

-- Decisions that could not be written, by which control plane, when and why.
CREATE TABLE loss (
    began INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    recorder INTEGER NOT NULL,
    cause TEXT NOT NULL,
    decisions INTEGER NOT NULL,
    PRIMARY KEY (ended, recorder, cause)
) WITHOUT ROWID;

CREATE VIEW readable AS
SELECT
    strftime('%Y-%m-%dT%H:%M:%fZ', recorded / 1e6, 'unixepoch') AS recorded,
    (SELECT text FROM text WHERE code = model) AS model,
    (SELECT text FROM text WHERE code = pool) AS pool,
    (SELECT text FROM text WHERE code = tier) AS tier,
    (SELECT text FROM text WHERE code = tenant) AS tenant,
    (SELECT text FROM text WHERE code = verdict) AS verdict,
    (SELECT trim(text) FROM text WHERE code = reasons) AS reasons,
    status
FROM decision;
