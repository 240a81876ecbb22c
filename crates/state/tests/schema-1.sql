PRAGMA journal_mode = WAL;
CREATE TABLE sandbox (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL UNIQUE,
    spec BLOB NOT NULL,
    created_ms INTEGER NOT NULL,
    remove_on_exit INTEGER NOT NULL,
    id_slot INTEGER UNIQUE
) STRICT;
CREATE TABLE label (
    sandbox INTEGER NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (sandbox, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX label_value ON label (key, value);
CREATE TABLE run (
    sandbox INTEGER NOT NULL,
    id TEXT NOT NULL,
    started_ms INTEGER NOT NULL,
    ended_ms INTEGER,
    end TEXT,
    PRIMARY KEY (sandbox, started_ms, id)
) STRICT, WITHOUT ROWID;
PRAGMA user_version = 1;
INSERT INTO sandbox VALUES (1, '0123456789abc', 'first', CAST('{"version":1}' AS BLOB), 1700000000000, 0, 7);
INSERT INTO label VALUES (1, 'team', 'a');
INSERT INTO run VALUES (1, '0000000000001', 5, 6,
    '{"status":{"Code":3},"reason":"exited","killed":false,"usage":{"cpu_us":null,"memory":null,"peak_memory":null,"memory_limit":null,"pids":null,"pids_limit":null,"read_bytes":null,"write_bytes":null,"oom_kills":null}}');
