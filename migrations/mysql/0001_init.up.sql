-- Holdfast, version 1, MySQL and MariaDB.
-- Each statement may run again: a migration that was cut off is repeated whole.
-- Times are microseconds since 1970-01-01 UTC, by the database's clock.

-- The version of the tables. One row.
CREATE TABLE IF NOT EXISTS {schema}`{prefix}schema` (
  version INTEGER NOT NULL PRIMARY KEY
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4;

INSERT INTO {schema}`{prefix}schema` (version)
SELECT 1 FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM {schema}`{prefix}schema`);

-- One row per version line of the server on which these tables have been, such as "MySQL 9.7". It admits
-- a line that no test run of Holdfast's names, after holdfast prove has passed there.
CREATE TABLE IF NOT EXISTS {schema}`{prefix}servers` (
  product   VARBINARY(64) NOT NULL PRIMARY KEY,
  -- when migrate up or a program first saw it
  seen_at   BIGINT        NOT NULL,
  -- when holdfast prove passed there; NULL is never
  proven_at BIGINT,
  -- its report, in JSON, and the SHA-256 of that
  report    MEDIUMBLOB,
  hash      BINARY(32)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- One row per idempotent operation, committed with its effect. Names and keys
-- are binary: no collation may take two of them for the same.
CREATE TABLE IF NOT EXISTS {schema}`{prefix}records` (
  -- whose operation it is: the first column of every key, so that all rows of an
  -- owner are on one shard
  owner               VARBINARY(128)  NOT NULL,
  -- SHA-256 over namespace, owner, operation and key
  key_hash            BINARY(32)      NOT NULL,
  -- the scope and the key themselves, byte for byte, for people to look at
  namespace           VARBINARY(128)  NOT NULL,
  operation           VARBINARY(128)  NOT NULL,
  op_key              VARBINARY(1024) NOT NULL,
  -- what was asked for: the hash of the request, and how it was taken
  fingerprint         VARBINARY(32)   NULL,
  fingerprint_version SMALLINT        NOT NULL,
  -- which attempt claimed the row
  attempt             BINARY(16)      NOT NULL,
  -- 1 claimed, 2 succeeded, 3 rejected; without the answer: 4 succeeded, 5 rejected
  state               SMALLINT        NOT NULL CHECK (state BETWEEN 1 AND 5),
  -- the answer to replay, and how it is to be read
  result              MEDIUMBLOB      NULL,
  codec               VARBINARY(80)   NULL,
  -- what the business calls it; kept when the answer goes
  business_id         VARBINARY(255)  NULL,
  created_at          BIGINT          NOT NULL,
  finished_at         BIGINT          NULL,
  -- when the result may go, and when the key may; NULL is never
  result_expires_at     BIGINT          NULL,
  key_expires_at      BIGINT          NULL,
  -- which process executed it, which version of the program, and for which request or
  -- trace; the latter goes with the answer
  holder              VARBINARY(255)  NULL,
  program             VARBINARY(128)  NULL,
  request_id          VARBINARY(255)  NULL,
  -- what the reaper has to do next: InnoDB has an entry for NULL in every index,
  -- so both lives share one
  due_at              BIGINT AS (LEAST(COALESCE(result_expires_at, key_expires_at), COALESCE(key_expires_at, result_expires_at))) STORED,
  PRIMARY KEY (owner, key_hash),
  KEY records_due_at (due_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- One row per lock, by its key's exact bytes behind one that says what kind of
-- lock it is. A row outlives its release, because its token must only rise. No
-- index on the expiry: every renewal would have to move its entry.
CREATE TABLE IF NOT EXISTS {schema}`{prefix}locks` (
  owner      VARBINARY(128) NOT NULL,
  name       VARBINARY(1025) NOT NULL,
  -- the fencing token of the last grant
  token      BIGINT          NOT NULL,
  -- how many terms the row has had: a watch tells by it what it has missed
  terms      BIGINT          NOT NULL DEFAULT 1,
  -- which attempt was granted the lock; NULL is free
  attempt    BINARY(16)      NULL,
  -- who that is, for people to look at
  holder     VARBINARY(255)  NOT NULL,
  granted_at BIGINT          NOT NULL,
  expires_at BIGINT          NOT NULL,
  -- what the holder of this term has to say
  value      VARBINARY(4096) NULL,
  -- when the lock was last taken away from its holder, by whom and why
  forced_at     BIGINT         NULL,
  forced_by     VARBINARY(255) NULL,
  forced_reason VARBINARY(500) NULL,
  PRIMARY KEY (owner, name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- What every token of a new row must exceed: rows that were reaped may have had
-- it. store tells one set of these tables from another. One row.
CREATE TABLE IF NOT EXISTS {schema}`{prefix}floor` (
  id    SMALLINT   NOT NULL PRIMARY KEY CHECK (id = 1),
  token BIGINT     NOT NULL,
  store BINARY(16) NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4;

INSERT INTO {schema}`{prefix}floor` (id, token, store)
SELECT 1, 0, UNHEX(REPLACE(UUID(), '-', '')) FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM {schema}`{prefix}floor`);

-- One row per named value that is changed by compare-and-swap. A row outlives the
-- deletion of its value, because its revision must only rise.
CREATE TABLE IF NOT EXISTS {schema}`{prefix}registers` (
  owner      VARBINARY(128) NOT NULL,
  name       VARBINARY(1024) NOT NULL,
  -- NULL is deleted, or not yet there
  value      MEDIUMBLOB      NULL,
  -- goes up by one with every change; 0 is not yet there
  revision   BIGINT          NOT NULL,
  changed_at BIGINT          NOT NULL,
  PRIMARY KEY (owner, name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- Who waits for a lock that another process has: a row a key and waiting
-- process, kept up while it waits.
CREATE TABLE IF NOT EXISTS {schema}`{prefix}waiters` (
  owner      VARBINARY(128) NOT NULL,
  name       VARBINARY(1025) NOT NULL,
  waiter     BINARY(16)      NOT NULL,
  holder     VARBINARY(255)  NOT NULL,
  -- how many calls wait there
  waiting    INTEGER         NOT NULL,
  expires_at BIGINT          NOT NULL,
  PRIMARY KEY (owner, name, waiter)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- One row per claim on a lock that has a line: those who have it, then those who
-- wait, in the order of their tokens. A claim's row goes with it; the tokens come
-- from the key's row in locks, which stays.
CREATE TABLE IF NOT EXISTS {schema}`{prefix}tickets` (
  owner      VARBINARY(128) NOT NULL,
  name       VARBINARY(1025) NOT NULL,
  -- its place in the line, and its fencing token once it is granted
  token      BIGINT          NOT NULL,
  -- which attempt this is
  attempt    BINARY(16)      NOT NULL,
  -- how much of the capacity it takes: an exclusive claim takes all
  units      INTEGER         NOT NULL,
  capacity   INTEGER         NOT NULL,
  -- who that is, for people to look at
  holder     VARBINARY(255)  NOT NULL,
  queued_at BIGINT          NOT NULL,
  -- NULL is waiting
  granted_at BIGINT          NULL,
  expires_at BIGINT          NOT NULL,
  PRIMARY KEY (owner, name, token),
  UNIQUE KEY tickets_attempt (owner, attempt)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- One row per staged operation: one that calls the outside world in steps. Every
-- transition is a conditional update by attempt and token.
CREATE TABLE IF NOT EXISTS {schema}`{prefix}staged` (
  owner               VARBINARY(128) NOT NULL,
  -- the identity, the scope and the request, as in records
  key_hash            BINARY(32) NOT NULL,
  namespace           VARBINARY(128) NOT NULL,
  operation           VARBINARY(128) NOT NULL,
  op_key              VARBINARY(1024) NOT NULL,
  fingerprint         VARBINARY(32) NULL,
  fingerprint_version SMALLINT NOT NULL,
  request             MEDIUMBLOB NULL,
  -- 1 pending, 2 succeeded, 3 rejected; without the answer: 4 succeeded, 5 rejected; 6 unknown
  state               SMALLINT NOT NULL CHECK (state BETWEEN 1 AND 6),
  result              MEDIUMBLOB NULL,
  -- which JSON the result is read from: see idempotency/shape.go
  result_type         VARBINARY(4096) NULL,
  -- who works on it; NULL is nobody. The token rises with every change of hands.
  attempt             BINARY(16) NULL,
  holder              VARBINARY(255) NULL,
  token               BIGINT   NOT NULL,
  -- the end of the worker's lease; without a worker, when it may be tried again
  due_at              BIGINT   NOT NULL,
  -- the step that has begun, and what may be done with it once the lease has
  -- ended: 1 taken over, 2 parked as unknown, 3 taken over to ask the provider; 4 of
  -- one that is parked because its result cannot be read; 5 where the provider has
  -- contradicted itself about a call
  step                VARBINARY(128) NOT NULL,
  mode                SMALLINT NOT NULL CHECK (mode BETWEEN 1 AND 5),
  -- attempts, counted apart: those that never finished crashed
  started             INTEGER  NOT NULL,
  finished            INTEGER  NOT NULL,
  -- 1 while a provider has accepted the step and settles it later: due_at is then the
  -- deadline of its answer
  accepted            SMALLINT NOT NULL,
  -- 1 after a restore to an earlier point: steps may have been done that are not here
  restored            SMALLINT NOT NULL,
  version             BIGINT   NOT NULL,
  -- why it waits or was parked
  reason              VARBINARY(500) NULL,
  created_at          BIGINT   NOT NULL,
  moved_at            BIGINT   NOT NULL,
  finished_at         BIGINT,
  -- when a step that had succeeded was first reported as taken back
  reversed_at         BIGINT NULL,
  -- which version of the program executed it last, and for which request or trace
  program             VARBINARY(255) NULL,
  request_id          VARBINARY(255) NULL,
  -- as in records
  result_expires_at   BIGINT NULL,
  key_expires_at      BIGINT NULL,
  PRIMARY KEY (owner, key_hash),
  KEY staged_due_at (state, due_at),
  KEY staged_result_expires_at (result_expires_at),
  KEY staged_key_expires_at (key_expires_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- One row per step of a staged operation: its recovery points.
CREATE TABLE IF NOT EXISTS {schema}`{prefix}steps` (
  owner      VARBINARY(128) NOT NULL,
  key_hash     BINARY(32) NOT NULL,
  name         VARBINARY(128) NOT NULL,
  -- 0 not done, 1 begun, 2 done, 3 rejected; 4 accepted by the provider, which settles it later
  state        SMALLINT NOT NULL CHECK (state BETWEEN 0 AND 4),
  -- the idempotency key that the provider was given; empty for a step in this database
  provider_key VARBINARY(64) NOT NULL,
  result       MEDIUMBLOB NULL,
  result_type  VARBINARY(4096) NULL,
  -- of the worker that began it last, and how often that was
  token        BIGINT   NOT NULL,
  starts       INTEGER  NOT NULL,
  begun_at     BIGINT   NOT NULL,
  moved_at     BIGINT   NOT NULL,
  -- the provider, and its own name for the call
  provider     VARBINARY(64) NULL,
  reference    VARBINARY(255) NULL,
  -- when an accepted step has to be settled; when a step that was done was taken back
  deadline_at  BIGINT NULL,
  reversed_at  BIGINT NULL,
  PRIMARY KEY (owner, key_hash, name),
  KEY steps_provider_key (provider_key),
  KEY steps_reference (owner, provider, reference)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- What a provider said later, once each.
CREATE TABLE IF NOT EXISTS {schema}`{prefix}provider_events` (
  owner      VARBINARY(128) NOT NULL,
  key_hash    BINARY(32) NOT NULL,
  event_id     VARBINARY(255) NOT NULL,
  kind        VARBINARY(128) NOT NULL,
  body        MEDIUMBLOB NULL,
  received_at BIGINT NOT NULL,
  PRIMARY KEY (owner, key_hash, event_id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- What operators did, who and why. Rows are only added.
CREATE TABLE IF NOT EXISTS {schema}`{prefix}interventions` (
  owner      VARBINARY(128) NOT NULL,
  id          BINARY(16) NOT NULL,
  key_hash    BINARY(32) NOT NULL,
  namespace   VARBINARY(128) NOT NULL,
  action      VARBINARY(64) NOT NULL,
  by_whom     VARBINARY(255) NOT NULL,
  reason      VARBINARY(500) NOT NULL,
  happened_at BIGINT NOT NULL,
  PRIMARY KEY (owner, id),
  KEY interventions_key_hash (owner, key_hash)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- Passes of the reaper that did or failed something. The reaper keeps the last
-- thousand of them, for 90 days.
CREATE TABLE IF NOT EXISTS {schema}`{prefix}sweeps` (
  id       BINARY(16)     NOT NULL,
  began_at BIGINT         NOT NULL,
  ended_at BIGINT         NOT NULL,
  -- whose reaper it was, for people to look at
  holder   VARBINARY(255) NOT NULL,
  cleared  BIGINT         NOT NULL,
  -- 1: a bound on its rows ended it
  more     SMALLINT       NOT NULL,
  -- what was done in each table, in JSON
  tasks    MEDIUMBLOB     NOT NULL,
  -- what ended it; NULL is nothing
  error    VARBINARY(500) NULL,
  PRIMARY KEY (ended_at, id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- Messages to publish, written in the transaction of their cause.
CREATE TABLE IF NOT EXISTS {schema}`{prefix}outbox` (
  owner       VARBINARY(128) NOT NULL,
  -- which outbox
  name        VARBINARY(128) NOT NULL,
  -- the messages of a key are published in the order of seq
  message_key VARBINARY(255) NOT NULL,
  seq         BIGINT         NOT NULL,
  -- what consumers tell duplicates by
  id          VARBINARY(255) NOT NULL,
  topic       VARBINARY(255) NOT NULL,
  headers     MEDIUMBLOB     NULL,
  body        MEDIUMBLOB     NOT NULL,
  -- 1 waiting, 2 published, 3 dead, 4 discarded
  state       SMALLINT       NOT NULL CHECK (state BETWEEN 1 AND 4),
  -- how often a relay began to publish it, and which one has it
  starts      INTEGER        NOT NULL,
  attempt     BINARY(16)     NULL,
  -- when a relay may take it; of the other states, since when
  due_at      BIGINT         NOT NULL,
  -- why it was not published
  reason      VARBINARY(500) NULL,
  written_at  BIGINT         NOT NULL,
  PRIMARY KEY (owner, name, message_key, seq),
  KEY outbox_due_at (name, state, due_at),
  KEY outbox_first (owner, name, message_key, state, seq)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- One row per key of an outbox that has messages. Each write locks it until its
-- transaction ends, so that seq follows the order of the commits.
CREATE TABLE IF NOT EXISTS {schema}`{prefix}outbox_keys` (
  owner       VARBINARY(128) NOT NULL,
  name        VARBINARY(128) NOT NULL,
  message_key VARBINARY(255) NOT NULL,
  last_seq    BIGINT         NOT NULL,
  PRIMARY KEY (owner, name, message_key)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- One row per set of parts of Op.Similar: the operation that was executed for it
-- last, until its window ends. Committed with the operation's record.
CREATE TABLE IF NOT EXISTS {schema}`{prefix}similar` (
  owner        VARBINARY(128)  NOT NULL,
  -- SHA-256 over namespace, owner, operation and what makes two operations similar
  similar_hash BINARY(32)      NOT NULL,
  namespace    VARBINARY(128)  NOT NULL,
  operation    VARBINARY(128)  NOT NULL,
  -- the operation that was executed: its record, and its key for people to look at
  key_hash     BINARY(32)      NOT NULL,
  op_key       VARBINARY(1024) NOT NULL,
  -- which attempt executed it; a caller that has seen it may confirm another one
  attempt      BINARY(16)      NOT NULL,
  claimed_at   BIGINT          NOT NULL,
  -- the end of the window
  expires_at   BIGINT          NOT NULL,
  PRIMARY KEY (owner, similar_hash),
  KEY similar_expires_at (expires_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- One row per limit: what may be used in all, and what is. The condition is there for
-- writers that go past package limits, whose own statements test it.
CREATE TABLE IF NOT EXISTS {schema}`{prefix}limits` (
  owner        VARBINARY(128) NOT NULL,
  -- which limits
  name         VARBINARY(128) NOT NULL,
  limit_key    VARBINARY(512) NOT NULL,
  limit_amount BIGINT         NOT NULL,
  reserved     BIGINT         NOT NULL,
  captured     BIGINT         NOT NULL,
  changed_at   BIGINT         NOT NULL,
  PRIMARY KEY (owner, name, limit_key),
  CHECK (limit_amount >= 0 AND reserved >= 0 AND captured >= 0 AND reserved <= limit_amount - captured)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- One row per reservation, or amount taken at once, under the id that the program gave it.
CREATE TABLE IF NOT EXISTS {schema}`{prefix}limit_entries` (
  owner      VARBINARY(128) NOT NULL,
  name       VARBINARY(128) NOT NULL,
  id         VARBINARY(512) NOT NULL,
  limit_key  VARBINARY(512) NOT NULL,
  amount     BIGINT         NOT NULL CHECK (amount > 0),
  captured   BIGINT         NOT NULL CHECK (captured >= 0),
  -- 1 reserved, 2 captured, 3 voided, 4 expired
  state      SMALLINT       NOT NULL CHECK (state BETWEEN 1 AND 4),
  created_at BIGINT         NOT NULL,
  -- when a reservation expires; of the other states, since when
  due_at     BIGINT         NOT NULL,
  -- when the id may go; NULL is never
  forget_at  BIGINT         NULL,
  PRIMARY KEY (owner, name, id),
  KEY limit_entries_due_at (owner, name, limit_key, state, due_at),
  KEY limit_entries_forget_at (forget_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- Interventions that one person has proposed, until another one confirms them, or they expire.
CREATE TABLE IF NOT EXISTS {schema}`{prefix}proposals` (
  owner        VARBINARY(128) NOT NULL,
  id           BINARY(16)     NOT NULL,
  namespace    VARBINARY(128) NOT NULL,
  action       VARBINARY(64)  NOT NULL,
  -- what is to be done, in JSON
  payload      MEDIUMBLOB     NOT NULL,
  by_whom      VARBINARY(255) NOT NULL,
  session_name VARBINARY(512) NOT NULL,
  reason       VARBINARY(500) NOT NULL,
  proposed_at  BIGINT         NOT NULL,
  expires_at   BIGINT         NOT NULL,
  PRIMARY KEY (owner, id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- One row per intervention, written in its transaction. Rows are only added: the hash of each covers
-- the one before it. See docs/audit.md.
CREATE TABLE IF NOT EXISTS {schema}`{prefix}audit` (
  -- '' is the database's; on Vitess each owner has a chain
  chain        VARBINARY(128)  NOT NULL,
  seq          BIGINT          NOT NULL CHECK (seq > 0),
  happened_at  BIGINT          NOT NULL,
  -- who, as the caller named the person, and as the database knows the session: no account but the owner
  -- of the table may write session_name
  actor        VARBINARY(255)  NOT NULL,
  session_name VARBINARY(512)  NOT NULL{session_user},
  action       VARBINARY(64)   NOT NULL,
  -- on what; subject is a hash of its key, empty for what has no key
  kind         VARBINARY(32)   NOT NULL,
  owner        VARBINARY(128)  NOT NULL,
  namespace    VARBINARY(128)  NOT NULL,
  subject      VARBINARY(32)   NOT NULL,
  reason       VARBINARY(500)  NOT NULL,
  -- the second person, if it was proposed; otherwise empty
  confirmed_by VARBINARY(255)  NOT NULL,
  -- JSON
  before_state VARBINARY(4096) NOT NULL,
  after_state  VARBINARY(4096) NOT NULL,
  hash         BINARY(32)      NOT NULL,
  PRIMARY KEY (chain, seq)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4;
