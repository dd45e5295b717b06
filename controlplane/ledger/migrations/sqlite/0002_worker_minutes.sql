-- What became of the decisions that a filter worker made in a minute, as one control plane knows: how many there were,
-- how many of them it wrote, and how many it lost and told so. `minute` is in Unix minutes.
CREATE TABLE worker_minute (
    minute INTEGER NOT NULL,
    worker TEXT NOT NULL,
    recorder INTEGER NOT NULL,
    made INTEGER NOT NULL,
    written INTEGER NOT NULL,
    lost INTEGER NOT NULL,
    PRIMARY KEY (minute, worker, recorder)
) WITHOUT ROWID;
