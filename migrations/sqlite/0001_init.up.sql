-- Holdfast, version 1, SQLite.
-- Each statement may run again: a migration that was cut off is repeated whole.
-- Times are microseconds since 1970-01-01 UTC, by the database's clock.

-- The version of the tables. One row.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}schema" (
  version INTEGER NOT NULL PRIMARY KEY
) STRICT;

INSERT INTO {schema}"{prefix}schema" (version)
SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM {schema}"{prefix}schema");

-- One row per idempotent operation, committed with its effect.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}records" (
  -- SHA-256 over namespace, tenant, operation and key: the row's identity
  key_hash            BLOB    NOT NULL PRIMARY KEY CHECK (length(key_hash) = 32),
  -- the scope and the key themselves, byte for byte, for people to look at
  namespace           TEXT    NOT NULL,
  tenant              TEXT    NOT NULL,
  operation           TEXT    NOT NULL,
  op_key              BLOB    NOT NULL,
  -- what was asked for: the hash of the request, and how it was taken
  fingerprint         BLOB    CHECK (length(fingerprint) = 32),
  fingerprint_version INTEGER NOT NULL,
  -- which attempt claimed the row
  attempt             BLOB    NOT NULL CHECK (length(attempt) = 16),
  -- 1 claimed, 2 succeeded, 3 rejected; without the answer: 4 succeeded, 5 rejected
  state               INTEGER NOT NULL CHECK (state BETWEEN 1 AND 5),
  -- the answer to replay, and how it is to be read
  result              BLOB,
  codec               TEXT,
  -- what the business calls it; kept when the answer goes
  business_id         TEXT,
  created_at          INTEGER NOT NULL,
  finished_at         INTEGER,
  -- when the result may go, and when the key may; NULL is never
  body_expires_at     INTEGER,
  key_expires_at      INTEGER
) STRICT;

CREATE INDEX IF NOT EXISTS {schema}"{prefix}records_body_expires_at"
  ON "{prefix}records" (body_expires_at) WHERE body_expires_at IS NOT NULL;

CREATE INDEX IF NOT EXISTS {schema}"{prefix}records_key_expires_at"
  ON "{prefix}records" (key_expires_at) WHERE key_expires_at IS NOT NULL;

-- One row per lock, by its key's exact bytes behind one that says what kind of
-- lock it is. A row outlives its release, because its token must only rise.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}locks" (
  name       BLOB    NOT NULL PRIMARY KEY CHECK (length(name) BETWEEN 2 AND 1025),
  -- the fencing token of the last grant
  token      INTEGER NOT NULL,
  -- which attempt was granted the lock; NULL is free
  owner      BLOB    CHECK (length(owner) = 16),
  -- who that is, for people to look at
  holder     TEXT    NOT NULL,
  granted_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  -- what the holder of this term has to say
  value      BLOB    CHECK (length(value) <= 4096),
  -- when the lock was last taken away from its holder, by whom and why
  forced_at     INTEGER,
  forced_by     TEXT,
  forced_reason TEXT
) STRICT;

-- What every token of a new row must exceed: rows that were reaped may have had
-- it. store tells one set of these tables from another. One row.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}floor" (
  id    INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
  token INTEGER NOT NULL,
  store BLOB    NOT NULL CHECK (length(store) = 16)
) STRICT;

INSERT INTO {schema}"{prefix}floor" (id, token, store)
SELECT 1, 0, randomblob(16) WHERE NOT EXISTS (SELECT 1 FROM {schema}"{prefix}floor");

-- Who waits for a lock that another process has: a row a key and waiting
-- process, kept up while it waits.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}waiters" (
  name       BLOB    NOT NULL,
  waiter     BLOB    NOT NULL CHECK (length(waiter) = 16),
  holder     TEXT    NOT NULL,
  -- how many calls wait there
  waiting    INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (name, waiter)
) STRICT;

-- One row per claim on a lock that has a line: those who have it, then those who
-- wait, in the order of their tokens. A claim's row goes with it; the tokens come
-- from the key's row in locks, which stays.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}claims" (
  name       BLOB    NOT NULL CHECK (length(name) BETWEEN 2 AND 1025),
  -- its place in the line, and its fencing token once it is granted
  token      INTEGER NOT NULL,
  -- which attempt this is
  owner      BLOB    NOT NULL UNIQUE CHECK (length(owner) = 16),
  -- how much of the capacity it takes: an exclusive claim takes all
  units      INTEGER NOT NULL,
  capacity   INTEGER NOT NULL,
  -- who that is, for people to look at
  holder     TEXT    NOT NULL,
  claimed_at INTEGER NOT NULL,
  -- NULL is waiting
  granted_at INTEGER,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (name, token)
) STRICT;
