-- What became of the decisions that a filter worker made in a minute, as one control plane knows: how many there were,
-- how many of them it wrote, and how many it lost and told so. `minute` is in Unix minutes.
CREATE TABLE headrace_worker_minute (
    minute bigint NOT NULL,
    worker text NOT NULL,
    recorder bigint NOT NULL,
    made bigint NOT NULL,
    written bigint NOT NULL,
    lost bigint NOT NULL,
    PRIMARY KEY (minute, worker, recorder)
);
