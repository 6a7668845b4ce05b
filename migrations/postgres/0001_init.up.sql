-- Holdfast, version 1, PostgreSQL.
-- Each statement may run again: a migration that was cut off is repeated whole.
-- Times are microseconds since 1970-01-01 UTC, by the database's clock.
--
-- A table of a page or two is read whole rather than by its index, and a prepared
-- statement keeps to that while the table grows, until autovacuum has looked at
-- it. So those that are asked by key are given 16 pages, and keep them.
--
-- PostgreSQL reads each CHECK anew for each statement that writes: they were a
-- third of what a claim costs it, and a quarter of a lease. So the tables of
-- records, locks, waiters and tickets have none; lengths are checked before they are sent.

-- The version of the tables. One row.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}schema" (
  version integer NOT NULL PRIMARY KEY
);

INSERT INTO {schema}"{prefix}schema" (version)
SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM {schema}"{prefix}schema");

-- One row per version line of the server on which these tables have been, such as "PostgreSQL 18". It
-- admits a line that no test run of Holdfast's names, after holdfast prove has passed there.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}servers" (
  product   text   COLLATE "C" NOT NULL PRIMARY KEY,
  -- when migrate up or a program first saw it
  seen_at   bigint NOT NULL,
  -- when holdfast prove passed there; NULL is never
  proven_at bigint,
  -- its report, in JSON, and the SHA-256 of that
  report    text,
  hash      bytea  CHECK (octet_length(hash) = 32)
);

-- One row per idempotent operation, committed with its effect.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}records" (
  -- whose operation it is: the first column of every key, so that all rows of an
  -- owner are on one shard
  owner               text     COLLATE "C" NOT NULL,
  -- SHA-256 over namespace, owner, operation and key
  key_hash            bytea    NOT NULL,
  -- the scope and the key themselves, byte for byte, for people to look at
  namespace           text     COLLATE "C" NOT NULL,
  operation           text     COLLATE "C" NOT NULL,
  op_key              bytea    NOT NULL,
  -- what was asked for: the hash of the request, and how it was taken
  fingerprint         bytea,
  fingerprint_version smallint NOT NULL,
  -- which attempt claimed the row
  attempt             bytea    NOT NULL,
  -- 1 claimed, 2 succeeded, 3 rejected; without the answer: 4 succeeded, 5 rejected
  state               smallint NOT NULL,
  -- the answer to replay, and how it is to be read
  result              bytea,
  codec               text     COLLATE "C",
  -- what the business calls it; kept when the answer goes
  business_id         text     COLLATE "C",
  created_at          bigint   NOT NULL,
  finished_at         bigint,
  -- when the result may go, and when the key may; NULL is never
  result_expires_at     bigint,
  key_expires_at      bigint,
  -- which process executed it, which version of the program, and for which request or
  -- trace; the latter goes with the answer
  holder              text,
  program             text,
  request_id          text,
  PRIMARY KEY (owner, key_hash)
) WITH (vacuum_truncate = false);

INSERT INTO {schema}"{prefix}records" (key_hash, namespace, owner, operation, op_key, fingerprint_version, attempt, state, created_at)
SELECT pg_catalog.decode(pg_catalog.lpad(pg_catalog.to_hex(n), 64, '0'), 'hex'), '', '', '', pg_catalog.decode(pg_catalog.repeat('00', 1800), 'hex'), 0, pg_catalog.decode(pg_catalog.repeat('00', 16), 'hex'), 1, 0
FROM pg_catalog.generate_series(1, 64) n ON CONFLICT DO NOTHING;

DELETE FROM {schema}"{prefix}records" WHERE owner = '' AND key_hash <= pg_catalog.decode(pg_catalog.lpad('40', 64, '0'), 'hex') AND namespace = '';

CREATE INDEX IF NOT EXISTS "{prefix}records_result_expires_at"
  ON {schema}"{prefix}records" (result_expires_at) WHERE result_expires_at IS NOT NULL;

CREATE INDEX IF NOT EXISTS "{prefix}records_key_expires_at"
  ON {schema}"{prefix}records" (key_expires_at) WHERE key_expires_at IS NOT NULL;

-- One row per lock, by its key's exact bytes behind one that says what kind of
-- lock it is. A row outlives its release, because its token must only rise. No
-- index on the expiry: with one, no renewal could be a heap-only update.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}locks" (
  owner      text COLLATE "C" NOT NULL,
  name       bytea  NOT NULL,
  -- the fencing token of the last grant
  token      bigint NOT NULL,
  -- how many terms the row has had: a watch tells by it what it has missed
  terms      bigint NOT NULL DEFAULT 1,
  -- which attempt was granted the lock; NULL is free
  attempt    bytea,
  -- who that is, for people to look at
  holder     text   NOT NULL,
  granted_at bigint NOT NULL,
  expires_at bigint NOT NULL,
  -- what the holder of this term has to say
  value      bytea,
  -- when the lock was last taken away from its holder, by whom and why
  forced_at     bigint,
  forced_by     text,
  forced_reason text,
  PRIMARY KEY (owner, name)
) WITH (vacuum_truncate = false);

INSERT INTO {schema}"{prefix}locks" (owner, name, token, holder, granted_at, expires_at)
SELECT '', pg_catalog.decode(pg_catalog.lpad(pg_catalog.to_hex(n), 8, '0'), 'hex'), 0, pg_catalog.repeat('-', 1800), 0, 0 FROM pg_catalog.generate_series(1, 64) n ON CONFLICT DO NOTHING;

DELETE FROM {schema}"{prefix}locks" WHERE owner = '' AND name <= pg_catalog.decode('00000040', 'hex');

-- What every token of a new row must exceed: rows that were reaped may have had
-- it. store tells one set of these tables from another. One row.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}floor" (
  id    smallint NOT NULL PRIMARY KEY CHECK (id = 1),
  token bigint   NOT NULL,
  store bytea    NOT NULL CHECK (octet_length(store) = 16)
);

INSERT INTO {schema}"{prefix}floor" (id, token, store)
SELECT 1, 0, pg_catalog.uuid_send(pg_catalog.gen_random_uuid()) WHERE NOT EXISTS (SELECT 1 FROM {schema}"{prefix}floor");

-- One row per named value that is changed by compare-and-swap. A row outlives the
-- deletion of its value, because its revision must only rise.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}registers" (
  owner      text COLLATE "C" NOT NULL,
  name       bytea  NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 1024),
  -- NULL is deleted, or not yet there
  value      bytea  CHECK (octet_length(value) <= 65536),
  -- goes up by one with every change; 0 is not yet there
  revision   bigint NOT NULL,
  changed_at bigint NOT NULL,
  PRIMARY KEY (owner, name)
);

-- Who waits for a lock that another process has: a row a key and waiting
-- process, kept up while it waits.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}waiters" (
  owner      text COLLATE "C" NOT NULL,
  name       bytea   NOT NULL,
  waiter     bytea   NOT NULL,
  holder     text    NOT NULL,
  -- how many calls wait there
  waiting    integer NOT NULL,
  expires_at bigint  NOT NULL,
  PRIMARY KEY (owner, name, waiter)
);

-- One row per claim on a lock that has a line: those who have it, then those who
-- wait, in the order of their tokens. A claim's row goes with it; the tokens come
-- from the key's row in locks, which stays.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}tickets" (
  owner      text COLLATE "C" NOT NULL,
  name       bytea   NOT NULL,
  -- its place in the line, and its fencing token once it is granted
  token      bigint  NOT NULL,
  -- which attempt this is
  attempt    bytea   NOT NULL,
  -- how much of the capacity it takes: an exclusive claim takes all
  units      integer NOT NULL,
  capacity   integer NOT NULL,
  -- who that is, for people to look at
  holder     text    NOT NULL,
  queued_at bigint  NOT NULL,
  -- NULL is waiting
  granted_at bigint,
  expires_at bigint  NOT NULL,
  PRIMARY KEY (owner, name, token)
) WITH (vacuum_truncate = false);

INSERT INTO {schema}"{prefix}tickets" (owner, name, token, attempt, units, capacity, holder, queued_at, expires_at)
SELECT '', pg_catalog.decode(pg_catalog.lpad(pg_catalog.to_hex(n), 8, '0'), 'hex'), 0, pg_catalog.decode(pg_catalog.lpad(pg_catalog.to_hex(n), 32, '0'), 'hex'), 1, 1, pg_catalog.repeat('-', 1800), 0, 0
FROM pg_catalog.generate_series(1, 64) n ON CONFLICT DO NOTHING;

DELETE FROM {schema}"{prefix}tickets" WHERE owner = '' AND name <= pg_catalog.decode('00000040', 'hex');

CREATE UNIQUE INDEX IF NOT EXISTS "{prefix}tickets_attempt" ON {schema}"{prefix}tickets" (owner, attempt);

-- One row per staged operation: one that calls the outside world in steps. Every
-- transition is a conditional update by attempt and token.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}staged" (
  owner               text     COLLATE "C" NOT NULL,
  -- the identity, the scope and the request, as in records
  key_hash            bytea    NOT NULL CHECK (octet_length(key_hash) = 32),
  namespace           text     COLLATE "C" NOT NULL,
  operation           text     COLLATE "C" NOT NULL,
  op_key              bytea    NOT NULL,
  fingerprint         bytea    CHECK (octet_length(fingerprint) = 32),
  fingerprint_version smallint NOT NULL,
  request             bytea,
  -- 1 pending, 2 succeeded, 3 rejected; without the answer: 4 succeeded, 5 rejected; 6 unknown
  state               smallint NOT NULL CHECK (state BETWEEN 1 AND 6),
  result              bytea,
  -- which JSON the result is read from: see idempotency/shape.go
  result_type         text,
  -- who works on it; NULL is nobody. The token rises with every change of hands.
  attempt             bytea    CHECK (octet_length(attempt) = 16),
  holder              text,
  token               bigint   NOT NULL,
  -- the end of the worker's lease; without a worker, when it may be tried again
  due_at              bigint   NOT NULL,
  -- the step that has begun, and what may be done with it once the lease has
  -- ended: 1 taken over, 2 parked as unknown, 3 taken over to ask the provider; 4 of
  -- one that is parked because its result cannot be read; 5 where the provider has
  -- contradicted itself about a call
  step                text     COLLATE "C" NOT NULL,
  mode                smallint NOT NULL CHECK (mode BETWEEN 1 AND 5),
  -- attempts, counted apart: those that never finished crashed
  started             integer  NOT NULL,
  finished            integer  NOT NULL,
  -- 1 while a provider has accepted the step and settles it later: due_at is then the
  -- deadline of its answer
  accepted            smallint NOT NULL,
  -- 1 after a restore to an earlier point: steps may have been done that are not here
  restored            smallint NOT NULL,
  version             bigint   NOT NULL,
  -- why it waits or was parked
  reason              text,
  created_at          bigint   NOT NULL,
  moved_at            bigint   NOT NULL,
  finished_at         bigint,
  -- when a step that had succeeded was first reported as taken back
  reversed_at         bigint,
  -- which version of the program executed it last, and for which request or trace
  program             text,
  request_id          text,
  -- as in records
  result_expires_at   bigint,
  key_expires_at      bigint,
  PRIMARY KEY (owner, key_hash)
) WITH (vacuum_truncate = false);

INSERT INTO {schema}"{prefix}staged" (key_hash, namespace, owner, operation, op_key, fingerprint_version, state, token, due_at, step, mode, started, finished,
  restored, accepted, version, created_at, moved_at)
SELECT pg_catalog.decode(pg_catalog.lpad(pg_catalog.to_hex(n), 64, '0'), 'hex'), '', '', '', pg_catalog.decode(pg_catalog.repeat('00', 1800), 'hex'), 0, 2, 0, 0, '', 1, 0, 0, 0, 0, 0, 0, 0
FROM pg_catalog.generate_series(1, 64) n ON CONFLICT DO NOTHING;

DELETE FROM {schema}"{prefix}staged" WHERE owner = '' AND key_hash <= pg_catalog.decode(pg_catalog.lpad('40', 64, '0'), 'hex') AND namespace = '';

CREATE INDEX IF NOT EXISTS "{prefix}staged_due_at"
  ON {schema}"{prefix}staged" (due_at) WHERE state IN (1, 6);

CREATE INDEX IF NOT EXISTS "{prefix}staged_result_expires_at"
  ON {schema}"{prefix}staged" (result_expires_at) WHERE result_expires_at IS NOT NULL;

CREATE INDEX IF NOT EXISTS "{prefix}staged_key_expires_at"
  ON {schema}"{prefix}staged" (key_expires_at) WHERE key_expires_at IS NOT NULL;

-- One row per step of a staged operation: its recovery points.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}steps" (
  owner      text COLLATE "C" NOT NULL,
  key_hash     bytea    NOT NULL CHECK (octet_length(key_hash) = 32),
  name         text     COLLATE "C" NOT NULL,
  -- 0 not done, 1 begun, 2 done, 3 rejected; 4 accepted by the provider, which settles it later
  state        smallint NOT NULL CHECK (state BETWEEN 0 AND 4),
  -- the idempotency key that the provider was given; empty for a step in this database
  provider_key text     COLLATE "C" NOT NULL,
  result       bytea,
  result_type  text,
  -- of the worker that began it last, and how often that was
  token        bigint   NOT NULL,
  starts       integer  NOT NULL,
  begun_at     bigint   NOT NULL,
  moved_at     bigint   NOT NULL,
  -- the provider, and its own name for the call
  provider     text     COLLATE "C",
  reference    text     COLLATE "C",
  -- when an accepted step has to be settled; when a step that was done was taken back
  deadline_at  bigint,
  reversed_at  bigint,
  PRIMARY KEY (owner, key_hash, name)
);

CREATE INDEX IF NOT EXISTS "{prefix}steps_provider_key"
  ON {schema}"{prefix}steps" (provider_key) WHERE provider_key <> '';

CREATE INDEX IF NOT EXISTS "{prefix}steps_reference"
  ON {schema}"{prefix}steps" (owner, provider, reference) WHERE reference IS NOT NULL;

-- What a provider said later, once each.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}provider_events" (
  owner      text COLLATE "C" NOT NULL,
  key_hash    bytea  NOT NULL CHECK (octet_length(key_hash) = 32),
  event_id     bytea  NOT NULL,
  kind        text   NOT NULL,
  body        bytea,
  received_at bigint NOT NULL,
  PRIMARY KEY (owner, key_hash, event_id)
);

-- What operators did, who and why. Rows are only added.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}interventions" (
  owner      text COLLATE "C" NOT NULL,
  id          bytea  NOT NULL CHECK (octet_length(id) = 16),
  key_hash    bytea  NOT NULL CHECK (octet_length(key_hash) = 32),
  namespace   text   COLLATE "C" NOT NULL,
  action      text   NOT NULL,
  by_whom     text   NOT NULL,
  reason      text   NOT NULL,
  happened_at bigint NOT NULL,
  PRIMARY KEY (owner, id)
);

CREATE INDEX IF NOT EXISTS "{prefix}interventions_key_hash"
  ON {schema}"{prefix}interventions" (owner, key_hash);

-- Passes of the reaper that did or failed something. The reaper keeps the last
-- thousand of them, for 90 days.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}sweeps" (
  id       bytea    NOT NULL CHECK (octet_length(id) = 16),
  began_at bigint   NOT NULL,
  ended_at bigint   NOT NULL,
  -- whose reaper it was, for people to look at
  holder   text     NOT NULL,
  cleared  bigint   NOT NULL,
  -- 1: a bound on its rows ended it
  more     smallint NOT NULL,
  -- what was done in each table, in JSON
  tasks    text     NOT NULL,
  -- what ended it; NULL is nothing
  error    text,
  PRIMARY KEY (ended_at, id)
);

-- Messages to publish, written in the transaction of their cause.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}outbox" (
  owner       text     COLLATE "C" NOT NULL,
  -- which outbox
  name        text     COLLATE "C" NOT NULL,
  -- the messages of a key are published in the order of seq
  message_key bytea    NOT NULL,
  seq         bigint   NOT NULL,
  -- what consumers tell duplicates by
  id          text     COLLATE "C" NOT NULL,
  topic       text     COLLATE "C" NOT NULL,
  headers     bytea,
  body        bytea    NOT NULL,
  -- 1 waiting, 2 published, 3 dead, 4 discarded
  state       smallint NOT NULL CHECK (state BETWEEN 1 AND 4),
  -- how often a relay began to publish it, and which one has it
  starts      integer  NOT NULL,
  attempt     bytea,
  -- when a relay may take it; of the other states, since when
  due_at      bigint   NOT NULL,
  -- why it was not published
  reason      text,
  written_at  bigint   NOT NULL,
  PRIMARY KEY (owner, name, message_key, seq)
);

CREATE INDEX IF NOT EXISTS "{prefix}outbox_due_at"
  ON {schema}"{prefix}outbox" (name, state, due_at);

CREATE INDEX IF NOT EXISTS "{prefix}outbox_first"
  ON {schema}"{prefix}outbox" (owner, name, message_key, state, seq) WHERE state IN (1, 3);

-- One row per key of an outbox that has messages. Each write locks it until its
-- transaction ends, so that seq follows the order of the commits.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}outbox_keys" (
  owner       text   COLLATE "C" NOT NULL,
  name        text   COLLATE "C" NOT NULL,
  message_key bytea  NOT NULL,
  last_seq    bigint NOT NULL,
  PRIMARY KEY (owner, name, message_key)
);

-- One row per set of parts of Op.Similar: the operation that was executed for it
-- last, until its window ends. Committed with the operation's record.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}similar" (
  owner        text   COLLATE "C" NOT NULL,
  -- SHA-256 over namespace, owner, operation and what makes two operations similar
  similar_hash bytea  NOT NULL,
  namespace    text   COLLATE "C" NOT NULL,
  operation    text   COLLATE "C" NOT NULL,
  -- the operation that was executed: its record, and its key for people to look at
  key_hash     bytea  NOT NULL,
  op_key       bytea  NOT NULL,
  -- which attempt executed it; a caller that has seen it may confirm another one
  attempt      bytea  NOT NULL,
  claimed_at   bigint NOT NULL,
  -- the end of the window
  expires_at   bigint NOT NULL,
  PRIMARY KEY (owner, similar_hash)
) WITH (vacuum_truncate = false);

CREATE INDEX IF NOT EXISTS "{prefix}similar_expires_at"
  ON {schema}"{prefix}similar" (expires_at);

-- One row per limit: what may be used in all, and what is. The condition is there for
-- writers that go past package limits, whose own statements test it.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}limits" (
  owner        text   COLLATE "C" NOT NULL,
  -- which limits
  name         bytea  NOT NULL,
  limit_key    bytea  NOT NULL,
  limit_amount bigint NOT NULL,
  reserved     bigint NOT NULL,
  captured     bigint NOT NULL,
  changed_at   bigint NOT NULL,
  PRIMARY KEY (owner, name, limit_key),
  CHECK (limit_amount >= 0 AND reserved >= 0 AND captured >= 0 AND reserved <= limit_amount - captured)
);

-- One row per reservation, or amount taken at once, under the id that the program gave it.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}limit_entries" (
  owner      text     COLLATE "C" NOT NULL,
  name       bytea    NOT NULL,
  id         bytea    NOT NULL,
  limit_key  bytea    NOT NULL,
  amount     bigint   NOT NULL CHECK (amount > 0),
  captured   bigint   NOT NULL CHECK (captured BETWEEN 0 AND amount),
  -- 1 reserved, 2 captured, 3 voided, 4 expired
  state      smallint NOT NULL CHECK (state BETWEEN 1 AND 4),
  created_at bigint   NOT NULL,
  -- when a reservation expires; of the other states, since when
  due_at     bigint   NOT NULL,
  -- when the id may go; NULL is never
  forget_at  bigint,
  PRIMARY KEY (owner, name, id)
);

CREATE INDEX IF NOT EXISTS "{prefix}limit_entries_due_at"
  ON {schema}"{prefix}limit_entries" (owner, name, limit_key, state, due_at);

CREATE INDEX IF NOT EXISTS "{prefix}limit_entries_forget_at"
  ON {schema}"{prefix}limit_entries" (forget_at) WHERE forget_at IS NOT NULL;

-- Interventions that one person has proposed, until another one confirms them, or they expire.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}proposals" (
  owner        text   COLLATE "C" NOT NULL,
  id           bytea  NOT NULL CHECK (octet_length(id) = 16),
  namespace    text   COLLATE "C" NOT NULL,
  action       text   NOT NULL,
  -- what is to be done, in JSON
  payload      bytea  NOT NULL,
  by_whom      text   NOT NULL,
  session_name text   NOT NULL DEFAULT session_user,
  reason       text   NOT NULL,
  proposed_at  bigint NOT NULL,
  expires_at   bigint NOT NULL,
  PRIMARY KEY (owner, id)
);

-- One row per intervention, written in its transaction. Rows are only added: the hash of each covers
-- the one before it. See docs/audit.md.
CREATE TABLE IF NOT EXISTS {schema}"{prefix}audit" (
  -- '' is the database's; on Vitess each owner has a chain
  chain        text   COLLATE "C" NOT NULL,
  seq          bigint NOT NULL CHECK (seq > 0),
  happened_at  bigint NOT NULL,
  -- who, as the caller named the person, and as the database knows the session: no account but the owner
  -- of the table may write session_name
  actor        text   NOT NULL,
  session_name text   NOT NULL DEFAULT session_user,
  action       text   NOT NULL,
  -- on what; subject is a hash of its key, empty for what has no key
  kind         text   NOT NULL,
  owner        text   COLLATE "C" NOT NULL,
  namespace    text   COLLATE "C" NOT NULL,
  subject      bytea  NOT NULL CHECK (octet_length(subject) IN (0, 32)),
  reason       text   NOT NULL,
  -- the second person, if it was proposed; otherwise empty
  confirmed_by text   NOT NULL,
  -- JSON
  before_state text   NOT NULL,
  after_state  text   NOT NULL,
  hash         bytea  NOT NULL CHECK (octet_length(hash) = 32),
  PRIMARY KEY (chain, seq)
);
