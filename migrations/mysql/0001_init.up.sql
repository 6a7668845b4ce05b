-- Holdfast, version 1, MySQL and MariaDB.
-- Each statement may run again: a migration that was cut off is repeated whole.
-- Times are microseconds since 1970-01-01 UTC, by the database's clock.

-- The version of the tables. One row.
CREATE TABLE IF NOT EXISTS {schema}`{prefix}schema` (
  version INTEGER NOT NULL PRIMARY KEY
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4;

INSERT INTO {schema}`{prefix}schema` (version)
SELECT 1 FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM {schema}`{prefix}schema`);

-- One row per idempotent operation, committed with its effect. Names and keys
-- are binary: no collation may take two of them for the same.
CREATE TABLE IF NOT EXISTS {schema}`{prefix}records` (
  -- SHA-256 over namespace, tenant, operation and key: the row's identity
  key_hash            BINARY(32)      NOT NULL PRIMARY KEY,
  -- the scope and the key themselves, byte for byte, for people to look at
  namespace           VARBINARY(128)  NOT NULL,
  tenant              VARBINARY(128)  NOT NULL,
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
  body_expires_at     BIGINT          NULL,
  key_expires_at      BIGINT          NULL,
  KEY records_body_expires_at (body_expires_at),
  KEY records_key_expires_at (key_expires_at)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- One row per lock, by its key's exact bytes behind one that says what kind of
-- lock it is. A row outlives its release, because its token must only rise. No
-- index on the expiry: every renewal would have to move its entry.
CREATE TABLE IF NOT EXISTS {schema}`{prefix}locks` (
  name       VARBINARY(1025) NOT NULL PRIMARY KEY,
  -- the fencing token of the last grant
  token      BIGINT          NOT NULL,
  -- which attempt was granted the lock; NULL is free
  owner      BINARY(16)      NULL,
  -- who that is, for people to look at
  holder     VARBINARY(255)  NOT NULL,
  granted_at BIGINT          NOT NULL,
  expires_at BIGINT          NOT NULL,
  -- what the holder of this term has to say
  value      VARBINARY(4096) NULL,
  -- when the lock was last taken away from its holder, by whom and why
  forced_at     BIGINT         NULL,
  forced_by     VARBINARY(255) NULL,
  forced_reason VARBINARY(500) NULL
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

-- Who waits for a lock that another process has: a row a key and waiting
-- process, kept up while it waits.
CREATE TABLE IF NOT EXISTS {schema}`{prefix}waiters` (
  name       VARBINARY(1025) NOT NULL,
  waiter     BINARY(16)      NOT NULL,
  holder     VARBINARY(255)  NOT NULL,
  -- how many calls wait there
  waiting    INTEGER         NOT NULL,
  expires_at BIGINT          NOT NULL,
  PRIMARY KEY (name, waiter)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4;

-- One row per claim on a lock that has a line: those who have it, then those who
-- wait, in the order of their tokens. A claim's row goes with it; the tokens come
-- from the key's row in locks, which stays.
CREATE TABLE IF NOT EXISTS {schema}`{prefix}claims` (
  name       VARBINARY(1025) NOT NULL,
  -- its place in the line, and its fencing token once it is granted
  token      BIGINT          NOT NULL,
  -- which attempt this is
  owner      BINARY(16)      NOT NULL,
  -- how much of the capacity it takes: an exclusive claim takes all
  units      INTEGER         NOT NULL,
  capacity   INTEGER         NOT NULL,
  -- who that is, for people to look at
  holder     VARBINARY(255)  NOT NULL,
  claimed_at BIGINT          NOT NULL,
  -- NULL is waiting
  granted_at BIGINT          NULL,
  expires_at BIGINT          NOT NULL,
  PRIMARY KEY (name, token),
  UNIQUE KEY claims_owner (owner)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4;
