-- Holdfast, version 1, SQLite.
-- Each statement may run again: a migration that was cut off is repeated whole.
-- Times are microseconds since 1970-01-01 UTC, by the database's clock.

-- The version of the tables. One row.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}schema" (
  version INTEGER NOT NULL PRIMARY KEY
) STRICT;

INSERT INTO {schema}"{prefix}schema" (version)
SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM {schema}"{prefix}schema");

-- One row per version line of the server on which these tables have been: see the other engines.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}servers" (
  product   TEXT    NOT NULL PRIMARY KEY,
  -- when migrate up or a program first saw it
  seen_at   INTEGER NOT NULL,
  -- when holdfast prove passed there; NULL is never
  proven_at INTEGER,
  -- its report, in JSON, and the SHA-256 of that
  report    TEXT,
  hash      BLOB CHECK (length(hash) = 32)
) STRICT, WITHOUT ROWID;

-- One row per idempotent operation, committed with its effect.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}records" (
  -- whose operation it is: the first column of every key, so that all rows of an
  -- owner are on one shard
  owner               TEXT    NOT NULL,
  -- SHA-256 over namespace, owner, operation and key
  key_hash            BLOB    NOT NULL CHECK (length(key_hash) = 32),
  -- the scope and the key themselves, byte for byte, for people to look at
  namespace           TEXT    NOT NULL,
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
  result_expires_at     INTEGER,
  key_expires_at      INTEGER,
  -- which process executed it, which version of the program, and for which request or
  -- trace; the latter goes with the answer
  holder              TEXT,
  program             TEXT,
  request_id          TEXT,
  PRIMARY KEY (owner, key_hash)
) STRICT;

CREATE INDEX IF NOT EXISTS {schema}"{prefix}records_result_expires_at"
  ON "{prefix}records" (result_expires_at) WHERE result_expires_at IS NOT NULL;

CREATE INDEX IF NOT EXISTS {schema}"{prefix}records_key_expires_at"
  ON "{prefix}records" (key_expires_at) WHERE key_expires_at IS NOT NULL;

-- One row per lock, by its key's exact bytes behind one that says what kind of
-- lock it is. A row outlives its release, because its token must only rise.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}locks" (
  owner      TEXT NOT NULL,
  name       BLOB    NOT NULL CHECK (length(name) BETWEEN 2 AND 1025),
  -- the fencing token of the last grant
  token      INTEGER NOT NULL,
  -- how many terms the row has had: a watch tells by it what it has missed
  terms      INTEGER NOT NULL DEFAULT 1,
  -- which attempt was granted the lock; NULL is free
  attempt    BLOB    CHECK (length(attempt) = 16),
  -- who that is, for people to look at
  holder     TEXT    NOT NULL,
  granted_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  -- what the holder of this term has to say
  value      BLOB    CHECK (length(value) <= 4096),
  -- when the lock was last taken away from its holder, by whom and why
  forced_at     INTEGER,
  forced_by     TEXT,
  forced_reason TEXT,
  PRIMARY KEY (owner, name)
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

-- One row per named value that is changed by compare-and-swap. A row outlives the
-- deletion of its value, because its revision must only rise.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}registers" (
  owner      TEXT NOT NULL,
  name       BLOB    NOT NULL CHECK (length(name) BETWEEN 1 AND 1024),
  -- NULL is deleted, or not yet there
  value      BLOB    CHECK (length(value) <= 65536),
  -- goes up by one with every change; 0 is not yet there
  revision   INTEGER NOT NULL,
  changed_at INTEGER NOT NULL,
  PRIMARY KEY (owner, name)
) STRICT;

-- Who waits for a lock that another process has: a row a key and waiting
-- process, kept up while it waits.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}waiters" (
  owner      TEXT NOT NULL,
  name       BLOB    NOT NULL,
  waiter     BLOB    NOT NULL CHECK (length(waiter) = 16),
  holder     TEXT    NOT NULL,
  -- how many calls wait there
  waiting    INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (owner, name, waiter)
) STRICT;

-- One row per claim on a lock that has a line: those who have it, then those who
-- wait, in the order of their tokens. A claim's row goes with it; the tokens come
-- from the key's row in locks, which stays.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}tickets" (
  owner      TEXT NOT NULL,
  name       BLOB    NOT NULL CHECK (length(name) BETWEEN 2 AND 1025),
  -- its place in the line, and its fencing token once it is granted
  token      INTEGER NOT NULL,
  -- which attempt this is
  attempt    BLOB    NOT NULL CHECK (length(attempt) = 16),
  -- how much of the capacity it takes: an exclusive claim takes all
  units      INTEGER NOT NULL,
  capacity   INTEGER NOT NULL,
  -- who that is, for people to look at
  holder     TEXT    NOT NULL,
  queued_at INTEGER NOT NULL,
  -- NULL is waiting
  granted_at INTEGER,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (owner, name, token),
  UNIQUE (owner, attempt)
) STRICT;

-- One row per staged operation: one that calls the outside world in steps. Every
-- transition is a conditional update by attempt and token.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}staged" (
  owner               TEXT NOT NULL,
  -- the identity, the scope and the request, as in records
  key_hash            BLOB    NOT NULL CHECK (length(key_hash) = 32),
  namespace           TEXT NOT NULL,
  operation           TEXT NOT NULL,
  op_key              BLOB    NOT NULL,
  fingerprint         BLOB    CHECK (length(fingerprint) = 32),
  fingerprint_version INTEGER NOT NULL,
  request             BLOB,
  -- 1 pending, 2 succeeded, 3 rejected; without the answer: 4 succeeded, 5 rejected; 6 unknown
  state               INTEGER NOT NULL CHECK (state BETWEEN 1 AND 6),
  result              BLOB,
  -- which JSON the result is read from: see idempotency/shape.go
  result_type         TEXT,
  -- who works on it; NULL is nobody. The token rises with every change of hands.
  attempt             BLOB    CHECK (length(attempt) = 16),
  holder              TEXT,
  token               INTEGER   NOT NULL,
  -- the end of the worker's lease; without a worker, when it may be tried again
  due_at              INTEGER   NOT NULL,
  -- the step that has begun, and what may be done with it once the lease has
  -- ended: 1 taken over, 2 parked as unknown, 3 taken over to ask the provider; 4 of
  -- one that is parked because its result cannot be read; 5 where the provider has
  -- contradicted itself about a call
  step                TEXT NOT NULL,
  mode                INTEGER NOT NULL CHECK (mode BETWEEN 1 AND 5),
  -- attempts, counted apart: those that never finished crashed
  started             INTEGER  NOT NULL,
  finished            INTEGER  NOT NULL,
  -- 1 while a provider has accepted the step and settles it later: due_at is then the
  -- deadline of its answer
  accepted            INTEGER NOT NULL,
  -- 1 after a restore to an earlier point: steps may have been done that are not here
  restored            INTEGER NOT NULL,
  version             INTEGER   NOT NULL,
  -- why it waits or was parked
  reason              TEXT,
  created_at          INTEGER   NOT NULL,
  moved_at            INTEGER   NOT NULL,
  finished_at         INTEGER,
  -- when a step that had succeeded was first reported as taken back
  reversed_at         INTEGER,
  -- which version of the program executed it last, and for which request or trace
  program             TEXT,
  request_id          TEXT,
  -- as in records
  result_expires_at   INTEGER,
  key_expires_at      INTEGER,
  PRIMARY KEY (owner, key_hash)
) STRICT;

CREATE INDEX IF NOT EXISTS {schema}"{prefix}staged_due_at"
  ON "{prefix}staged" (due_at) WHERE state IN (1, 6);

CREATE INDEX IF NOT EXISTS {schema}"{prefix}staged_result_expires_at"
  ON "{prefix}staged" (result_expires_at) WHERE result_expires_at IS NOT NULL;

CREATE INDEX IF NOT EXISTS {schema}"{prefix}staged_key_expires_at"
  ON "{prefix}staged" (key_expires_at) WHERE key_expires_at IS NOT NULL;

-- One row per step of a staged operation: its recovery points.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}steps" (
  owner      TEXT NOT NULL,
  key_hash     BLOB    NOT NULL CHECK (length(key_hash) = 32),
  name         TEXT NOT NULL,
  -- 0 not done, 1 begun, 2 done, 3 rejected; 4 accepted by the provider, which settles it later
  state        INTEGER NOT NULL CHECK (state BETWEEN 0 AND 4),
  -- the idempotency key that the provider was given; empty for a step in this database
  provider_key TEXT NOT NULL,
  result       BLOB,
  result_type  TEXT,
  -- of the worker that began it last, and how often that was
  token        INTEGER   NOT NULL,
  starts       INTEGER  NOT NULL,
  begun_at     INTEGER   NOT NULL,
  moved_at     INTEGER   NOT NULL,
  -- the provider, and its own name for the call
  provider     TEXT,
  reference    TEXT,
  -- when an accepted step has to be settled; when a step that was done was taken back
  deadline_at  INTEGER,
  reversed_at  INTEGER,
  PRIMARY KEY (owner, key_hash, name)
) STRICT;

CREATE INDEX IF NOT EXISTS {schema}"{prefix}steps_provider_key"
  ON "{prefix}steps" (provider_key) WHERE provider_key <> '';

CREATE INDEX IF NOT EXISTS {schema}"{prefix}steps_reference"
  ON "{prefix}steps" (owner, provider, reference) WHERE reference IS NOT NULL;

-- What a provider said later, once each.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}provider_events" (
  owner      TEXT NOT NULL,
  key_hash    BLOB  NOT NULL CHECK (length(key_hash) = 32),
  event_id     BLOB  NOT NULL,
  kind        TEXT   NOT NULL,
  body        BLOB,
  received_at INTEGER NOT NULL,
  PRIMARY KEY (owner, key_hash, event_id)
) STRICT;

-- What operators did, who and why. Rows are only added.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}interventions" (
  owner      TEXT NOT NULL,
  id          BLOB  NOT NULL CHECK (length(id) = 16),
  key_hash    BLOB  NOT NULL CHECK (length(key_hash) = 32),
  namespace   TEXT NOT NULL,
  action      TEXT   NOT NULL,
  by_whom     TEXT   NOT NULL,
  reason      TEXT   NOT NULL,
  happened_at INTEGER NOT NULL,
  PRIMARY KEY (owner, id)
) STRICT;

CREATE INDEX IF NOT EXISTS {schema}"{prefix}interventions_key_hash"
  ON "{prefix}interventions" (owner, key_hash);

-- Passes of the reaper that did or failed something. The reaper keeps the last
-- thousand of them, for 90 days.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}sweeps" (
  id       BLOB    NOT NULL CHECK (length(id) = 16),
  began_at INTEGER NOT NULL,
  ended_at INTEGER NOT NULL,
  -- whose reaper it was, for people to look at
  holder   TEXT    NOT NULL,
  cleared  INTEGER NOT NULL,
  -- 1: a bound on its rows ended it
  more     INTEGER NOT NULL,
  -- what was done in each table, in JSON
  tasks    TEXT    NOT NULL,
  -- what ended it; NULL is nothing
  error    TEXT,
  PRIMARY KEY (ended_at, id)
) STRICT;

-- Messages to publish, written in the transaction of their cause.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}outbox" (
  owner       TEXT    NOT NULL,
  -- which outbox
  name        TEXT    NOT NULL,
  -- the messages of a key are published in the order of seq
  message_key BLOB    NOT NULL,
  seq         INTEGER NOT NULL,
  -- what consumers tell duplicates by
  id          TEXT    NOT NULL,
  topic       TEXT    NOT NULL,
  headers     BLOB,
  body        BLOB    NOT NULL,
  -- 1 waiting, 2 published, 3 dead, 4 discarded
  state       INTEGER NOT NULL CHECK (state BETWEEN 1 AND 4),
  -- how often a relay began to publish it, and which one has it
  starts      INTEGER NOT NULL,
  attempt     BLOB,
  -- when a relay may take it; of the other states, since when
  due_at      INTEGER NOT NULL,
  -- why it was not published
  reason      TEXT,
  written_at  INTEGER NOT NULL,
  PRIMARY KEY (owner, name, message_key, seq)
) STRICT;

CREATE INDEX IF NOT EXISTS {schema}"{prefix}outbox_due_at"
  ON "{prefix}outbox" (name, state, due_at);

CREATE INDEX IF NOT EXISTS {schema}"{prefix}outbox_first"
  ON "{prefix}outbox" (owner, name, message_key, state, seq) WHERE state IN (1, 3);

-- One row per key of an outbox that has messages. Each write locks it until its
-- transaction ends, so that seq follows the order of the commits.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}outbox_keys" (
  owner       TEXT    NOT NULL,
  name        TEXT    NOT NULL,
  message_key BLOB    NOT NULL,
  last_seq    INTEGER NOT NULL,
  PRIMARY KEY (owner, name, message_key)
) STRICT;

-- One row per set of parts of Op.Similar: the operation that was executed for it
-- last, until its window ends. Committed with the operation's record.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}similar" (
  owner        TEXT    NOT NULL,
  -- SHA-256 over namespace, owner, operation and what makes two operations similar
  similar_hash BLOB    NOT NULL,
  namespace    TEXT    NOT NULL,
  operation    TEXT    NOT NULL,
  -- the operation that was executed: its record, and its key for people to look at
  key_hash     BLOB    NOT NULL,
  op_key       BLOB    NOT NULL,
  -- which attempt executed it; a caller that has seen it may confirm another one
  attempt      BLOB    NOT NULL,
  claimed_at   INTEGER NOT NULL,
  -- the end of the window
  expires_at   INTEGER NOT NULL,
  PRIMARY KEY (owner, similar_hash)
) STRICT;

CREATE INDEX IF NOT EXISTS {schema}"{prefix}similar_expires_at"
  ON "{prefix}similar" (expires_at);

-- One row per limit: what may be used in all, and what is. The condition is there for
-- writers that go past package limits, whose own statements test it.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}limits" (
  owner        TEXT    NOT NULL,
  -- which limits
  name         BLOB    NOT NULL,
  limit_key    BLOB    NOT NULL,
  limit_amount INTEGER NOT NULL,
  reserved     INTEGER NOT NULL,
  captured     INTEGER NOT NULL,
  changed_at   INTEGER NOT NULL,
  PRIMARY KEY (owner, name, limit_key),
  CHECK (limit_amount >= 0 AND reserved >= 0 AND captured >= 0 AND reserved <= limit_amount - captured)
) STRICT;

-- One row per reservation, or amount taken at once, under the id that the program gave it.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}limit_entries" (
  owner      TEXT    NOT NULL,
  name       BLOB    NOT NULL,
  id         BLOB    NOT NULL,
  limit_key  BLOB    NOT NULL,
  amount     INTEGER NOT NULL CHECK (amount > 0),
  captured   INTEGER NOT NULL CHECK (captured BETWEEN 0 AND amount),
  -- 1 reserved, 2 captured, 3 voided, 4 expired
  state      INTEGER NOT NULL CHECK (state BETWEEN 1 AND 4),
  created_at INTEGER NOT NULL,
  -- when a reservation expires; of the other states, since when
  due_at     INTEGER NOT NULL,
  -- when the id may go; NULL is never
  forget_at  INTEGER,
  PRIMARY KEY (owner, name, id)
) STRICT;

CREATE INDEX IF NOT EXISTS {schema}"{prefix}limit_entries_due_at"
  ON "{prefix}limit_entries" (owner, name, limit_key, state, due_at);

CREATE INDEX IF NOT EXISTS {schema}"{prefix}limit_entries_forget_at"
  ON "{prefix}limit_entries" (forget_at) WHERE forget_at IS NOT NULL;

-- Interventions that one person has proposed, until another one confirms them, or they expire.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}proposals" (
  owner        TEXT NOT NULL,
  id           BLOB  NOT NULL CHECK (length(id) = 16),
  namespace    TEXT NOT NULL,
  action       TEXT   NOT NULL,
  -- what is to be done, in JSON
  payload      BLOB  NOT NULL,
  by_whom      TEXT   NOT NULL,
  session_name TEXT   NOT NULL,
  reason       TEXT   NOT NULL,
  proposed_at  INTEGER NOT NULL,
  expires_at   INTEGER NOT NULL,
  PRIMARY KEY (owner, id)
) STRICT;

-- One row per intervention, written in its transaction. Rows are only added: the hash of each covers
-- the one before it. See docs/audit.md.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}audit" (
  -- '' is the database's; on Vitess each owner has a chain
  chain        TEXT NOT NULL,
  seq          INTEGER NOT NULL CHECK (seq > 0),
  happened_at  INTEGER NOT NULL,
  -- who, as the caller named him, and as the database knows the session
  actor        TEXT   NOT NULL,
  session_name TEXT   NOT NULL,
  action       TEXT   NOT NULL,
  -- on what; subject is a hash of its key, empty for what has no key
  kind         TEXT   NOT NULL,
  owner        TEXT NOT NULL,
  namespace    TEXT NOT NULL,
  subject      BLOB  NOT NULL CHECK (length(subject) IN (0, 32)),
  reason       TEXT   NOT NULL,
  -- the second person, if it was proposed; otherwise empty
  confirmed_by TEXT   NOT NULL,
  -- JSON
  before_state TEXT   NOT NULL,
  after_state  TEXT   NOT NULL,
  hash         BLOB  NOT NULL CHECK (length(hash) = 32),
  PRIMARY KEY (chain, seq)
) STRICT;
