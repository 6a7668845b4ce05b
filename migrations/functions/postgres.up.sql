-- Holdfast's functions for clients in other languages, version 1, PostgreSQL 13 and later.
-- See docs/protocol.md. Needs the tables of migration 1. Each statement may run again.
--
-- The functions run with the rights of their owner (SECURITY DEFINER), who owns the tables. A
-- client needs USAGE on the schema and EXECUTE on the functions, and no right to the tables.
-- search_path is pinned, and no argument becomes SQL.

-- What a call has left to check when its transaction commits. Each row is deleted as soon as it is
-- written; its trigger fires all the same. So the table is empty, and needs no log. It is vacuumed
-- by the number of calls, and not by its size.
CREATE UNLOGGED TABLE IF NOT EXISTS {schema}"{prefix}calls" (
  kind      text        NOT NULL,
  owner     text COLLATE "C",
  key_hash  bytea,
  attempt   bytea,
  called_at timestamptz NOT NULL
) WITH (vacuum_truncate = false, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_scale_factor = 0);

-- Only the message that ends a transaction block has a later statement_timestamp() than the call.
CREATE OR REPLACE FUNCTION {schema}"{prefix}check_call"() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
  CASE NEW.kind
  WHEN 'claim' THEN
    IF EXISTS (SELECT FROM {schema}"{prefix}records" r WHERE r.owner = NEW.owner AND r.key_hash = NEW.key_hash AND r.attempt = NEW.attempt AND r.state = 1) THEN
      RAISE EXCEPTION 'holdfast: a claim is committed without its result'
        USING HINT = 'BEGIN, call {prefix}claim, do the work, call {prefix}finish, then COMMIT. With autocommit a claim is refused.';
    END IF;
  WHEN 'guard' THEN
    IF NEW.called_at = statement_timestamp() THEN
      RAISE EXCEPTION 'holdfast: {prefix}guard ran outside a transaction, where it protects nothing'
        USING HINT = 'BEGIN, call {prefix}guard, write, then COMMIT in a message of its own.';
    END IF;
  ELSE
    IF NEW.called_at <> statement_timestamp() THEN
      RAISE EXCEPTION 'holdfast: {prefix}% ran inside a transaction, which may still be rolled back', NEW.kind
        USING HINT = 'Call it on a connection with autocommit.';
    END IF;
  END CASE;
  RETURN NULL;
END $holdfast$;

DROP TRIGGER IF EXISTS "{prefix}calls_check" ON {schema}"{prefix}calls";
CREATE CONSTRAINT TRIGGER "{prefix}calls_check" AFTER INSERT ON {schema}"{prefix}calls"
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}"{prefix}check_call"();

-- Leaves a call to be checked at the end of the transaction. Not for clients.
CREATE OR REPLACE FUNCTION {schema}"{prefix}called"(kind text, owner text, key_hash bytea, attempt bytea) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
DECLARE
  place tid;
BEGIN
  INSERT INTO {schema}"{prefix}calls" AS c VALUES ($1, $2, $3, $4, statement_timestamp()) RETURNING c.ctid INTO place;
  DELETE FROM {schema}"{prefix}calls" c WHERE c.ctid = place;
END $holdfast$;

-- Refuses a name or a key that the tables of other engines would not store unchanged. Not for clients.
CREATE OR REPLACE FUNCTION {schema}"{prefix}check_bytes"(argument text, value bytea, at_least integer, at_most integer) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
  IF value IS NULL OR octet_length(value) NOT BETWEEN at_least AND at_most THEN
    RAISE EXCEPTION 'holdfast: % has % bytes, not % to %', argument, COALESCE(octet_length(value)::text, 'no'), at_least, at_most USING ERRCODE = 'invalid_parameter_value';
  END IF;
END $holdfast$;

-- SHA-256 over 'holdfast record 1' and the four parts, each behind its length in eight bytes.
CREATE OR REPLACE FUNCTION {schema}"{prefix}key_hash"(namespace text, owner text, operation text, key bytea) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $holdfast$
DECLARE
  n bytea := convert_to(namespace, 'UTF8');
  o bytea := convert_to(owner, 'UTF8');
  p bytea := convert_to(operation, 'UTF8');
BEGIN
  PERFORM {schema}"{prefix}check_bytes"('namespace', n, 1, 128);
  PERFORM {schema}"{prefix}check_bytes"('owner', o, 0, 128);
  PERFORM {schema}"{prefix}check_bytes"('operation', p, 1, 128);
  PERFORM {schema}"{prefix}check_bytes"('key', key, 1, 1024);
  RETURN sha256('holdfast record 1'::bytea || int8send(octet_length(n)) || n || int8send(octet_length(o)) || o
    || int8send(octet_length(p)) || p || int8send(octet_length(key)) || key);
END $holdfast$;

-- What a call gets from a record. Not for clients.
CREATE OR REPLACE FUNCTION {schema}"{prefix}judge"(has_state smallint, has_fingerprint bytea, has_version smallint, has_result bytea, has_codec text,
  has_business_id text, expires_at bigint, asked bytea, version integer,
  OUT outcome text, OUT state text, OUT result text, OUT data bytea, OUT codec text, OUT business_id text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
  -- Fingerprints of other versions of the request's form cannot be compared. Form 1 of the canonical
  -- JSON differs from form 2 in numbers that no double holds.
  IF has_fingerprint <> asked AND has_version = version * 16 + 2 THEN
    outcome := 'mismatch';
    RETURN;
  ELSIF has_state = 1 THEN
    outcome := 'unknown';
    RETURN;
  END IF;
  state := CASE WHEN has_state IN (2, 4) THEN 'succeeded' ELSE 'rejected' END;
  business_id := has_business_id;
  IF has_state >= 4 OR expires_at <= {now} THEN
    outcome := 'expired';
    RETURN;
  END IF;
  outcome := 'replayed';
  codec := has_codec;
  IF codec = 'json' THEN
    result := convert_from(has_result, 'UTF8');
  ELSE
    data := COALESCE(has_result, ''::bytea);
  END IF;
END $holdfast$;

-- Reads a fingerprint of 64 hexadecimal digits; NULL is none. Not for clients.
CREATE OR REPLACE FUNCTION {schema}"{prefix}fingerprint"(digits text, version integer) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
  IF digits !~ '^[0-9a-fA-F]{64}$' THEN
    RAISE EXCEPTION 'holdfast: fingerprint is not 64 hexadecimal digits, nor NULL' USING ERRCODE = 'invalid_parameter_value';
  ELSIF version IS NULL OR version NOT BETWEEN 0 AND 2047 THEN
    RAISE EXCEPTION 'holdfast: version is not between 0 and 2047' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  RETURN decode(digits, 'hex');
END $holdfast$;

-- Claims a key in the caller's transaction. See docs/protocol.md for what it returns.
CREATE OR REPLACE FUNCTION {schema}"{prefix}claim"(namespace text, owner text, operation text, key bytea,
  fingerprint text DEFAULT NULL, version integer DEFAULT 0, wait_us bigint DEFAULT 10000000,
  OUT outcome text, OUT claim text, OUT state text, OUT result text, OUT data bytea, OUT codec text, OUT business_id text, OUT detail text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '10s' AS $holdfast$
#variable_conflict use_variable
DECLARE
  hash    bytea   := {schema}"{prefix}key_hash"(namespace, owner, operation, key);
  asked   bytea   := {schema}"{prefix}fingerprint"(fingerprint, version);
  lock_id bigint  := ('x' || encode(substr(hash, 1, 8), 'hex'))::bit(64)::bigint # {lockspace};
  attempt bytea   := uuid_send(gen_random_uuid());
  r       {schema}"{prefix}records";
BEGIN
  IF wait_us IS NULL OR wait_us NOT BETWEEN 0 AND 3600000000 THEN
    RAISE EXCEPTION 'holdfast: wait_us is not between 0 and an hour' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  -- Every claim of Holdfast's holds this lock until its transaction ends.
  PERFORM set_config('lock_timeout', GREATEST((wait_us + 999) / 1000, 20)::text || 'ms', true);
  IF NOT pg_try_advisory_xact_lock(lock_id) THEN
    IF wait_us > 0 THEN
      BEGIN
        PERFORM pg_advisory_xact_lock(lock_id);
      EXCEPTION WHEN lock_not_available THEN
        outcome := 'in_progress';
      END;
    ELSE
      outcome := 'in_progress';
    END IF;
    IF outcome IS NOT NULL THEN
      SELECT COALESCE(string_agg('session ' || l.pid || COALESCE(' of ' || a.usename, '') || COALESCE(' (' || NULLIF(a.application_name, '') || ')', ''), ', '), 'a transaction that has ended since')
        INTO detail FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
       WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND (l.classid::bigint << 32) | l.objid::bigint = lock_id
         AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
      detail := 'the key is held by ' || detail;
      RETURN;
    END IF;
  END IF;
  FOR i IN 1..3 LOOP
    INSERT INTO {schema}"{prefix}records" (owner, key_hash, namespace, operation, op_key, fingerprint, fingerprint_version, attempt, state, created_at)
    VALUES (owner, hash, namespace, operation, key, asked, version * 16 + 2, attempt, 1, {now}) ON CONFLICT DO NOTHING;
    IF FOUND THEN
      PERFORM {schema}"{prefix}called"('claim', owner, hash, attempt);
      outcome := 'claimed';
      claim := encode(attempt || hash || convert_to(owner, 'UTF8'), 'hex');
      RETURN;
    END IF;
    SELECT * INTO r FROM {schema}"{prefix}records" t WHERE t.owner = owner AND t.key_hash = hash;
    IF FOUND AND (r.key_expires_at IS NULL OR r.key_expires_at > {now}) THEN
      SELECT j.* INTO outcome, state, result, data, codec, business_id FROM {schema}"{prefix}judge"(r.state, r.fingerprint, r.fingerprint_version, r.result, r.codec, r.business_id, r.result_expires_at, asked, version) j;
      RETURN;
    END IF;
    -- The key's life is over, so it is free again.
    DELETE FROM {schema}"{prefix}records" t WHERE t.owner = owner AND t.key_hash = hash AND t.key_expires_at <= {now};
  END LOOP;
  RAISE EXCEPTION 'holdfast: the record of the key changed three times: begin again' USING ERRCODE = 'serialization_failure';
END $holdfast$;

-- Stores the result of a claim, in the transaction that has claimed.
CREATE OR REPLACE FUNCTION {schema}"{prefix}finish"(claim text, state text, result bytea, codec text DEFAULT 'bytes', business_id text DEFAULT NULL,
  result_ttl_us bigint DEFAULT NULL, key_ttl_us bigint DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $holdfast$
#variable_conflict use_variable
DECLARE
  handle bytea;
  wrong  text;
BEGIN
  IF claim IS NULL OR claim !~ '^([0-9a-f]{2}){48,176}$' THEN
    wrong := 'claim is not what {prefix}claim returned';
  ELSIF state IS NULL OR state NOT IN ('succeeded', 'rejected') THEN
    wrong := 'state is neither succeeded nor rejected';
  ELSIF codec IS NULL OR codec !~ '^(json|bytes)([+][A-Za-z0-9_.:-]{1,64})?$' THEN
    wrong := 'codec is neither json nor bytes, with or without + and a name';
  ELSIF state = 'rejected' AND codec !~ '^json' THEN
    wrong := 'a rejection is JSON: {"code": "...", "message": "..."}';
  ELSIF octet_length(result) > 15728640 THEN
    wrong := 'result has more than 15 MiB';
  ELSIF octet_length(convert_to(business_id, 'UTF8')) > 255 THEN
    wrong := 'business_id has more than 255 bytes';
  ELSIF result_ttl_us NOT BETWEEN 50000 AND 3162240000000000 OR key_ttl_us NOT BETWEEN 50000 AND 3162240000000000 THEN
    wrong := 'a TTL is not between 50 ms and a century, in microseconds: NULL keeps for ever';
  ELSIF key_ttl_us IS NOT NULL AND (result_ttl_us IS NULL OR result_ttl_us > key_ttl_us) THEN
    wrong := 'key_ttl_us is shorter than result_ttl_us: a result cannot outlive its key';
  ELSIF codec = 'json' THEN
    BEGIN
      IF convert_from(result, 'UTF8')::json IS NULL THEN
        wrong := 'result is not JSON';
      ELSIF state = 'rejected' AND (json_typeof(convert_from(result, 'UTF8')::json -> 'code') = 'string') IS NOT TRUE THEN
        wrong := 'a rejection is JSON: {"code": "...", "message": "..."}';
      END IF;
    EXCEPTION WHEN invalid_text_representation OR character_not_in_repertoire OR untranslatable_character OR statement_too_complex THEN
      wrong := 'result is not JSON';
    END;
  END IF;
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION 'holdfast: %', wrong USING ERRCODE = 'invalid_parameter_value';
  END IF;
  handle := decode(claim, 'hex');
  UPDATE {schema}"{prefix}records" r SET state = CASE state WHEN 'succeeded' THEN 2 ELSE 3 END, result = result, codec = codec, business_id = NULLIF(business_id, ''),
   finished_at = {now}, result_expires_at = {now} + result_ttl_us, key_expires_at = {now} + key_ttl_us,
   holder = session_user || ' pid ' || pg_backend_pid()
  WHERE r.owner = convert_from(substr(handle, 49), 'UTF8') AND r.key_hash = substr(handle, 17, 32) AND r.attempt = substr(handle, 1, 16) AND r.state = 1;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'holdfast: this transaction does not have the claim: it was finished already, or its transaction has ended';
  END IF;
END $holdfast$;

-- Ends a key that was not used, in the caller's transaction: a later claim of it replays a rejection.
CREATE OR REPLACE FUNCTION {schema}"{prefix}void"(namespace text, owner text, operation text, key bytea, reason text,
  key_ttl_us bigint DEFAULT NULL, wait_us bigint DEFAULT 10000000,
  OUT outcome text, OUT state text, OUT result text, OUT data bytea, OUT codec text, OUT business_id text, OUT detail text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $holdfast$
#variable_conflict use_variable
DECLARE
  claim text;
BEGIN
  PERFORM {schema}"{prefix}check_bytes"('reason', convert_to(reason, 'UTF8'), 1, 500);
  SELECT c.* INTO outcome, claim, state, result, data, codec, business_id, detail
    FROM {schema}"{prefix}claim"(namespace, owner, operation, key, NULL, 0, wait_us) c;
  IF outcome = 'claimed' THEN
    PERFORM {schema}"{prefix}finish"(claim, 'rejected', convert_to(json_build_object('code', 'voided', 'message', reason)::text, 'UTF8'), 'json', NULL, key_ttl_us, key_ttl_us);
    outcome := 'voided';
  ELSIF outcome = 'replayed' AND state = 'rejected' AND result::json ->> 'code' = 'voided' THEN
    outcome := 'voided';
    state := NULL; result := NULL; codec := NULL;
  ELSIF outcome IN ('replayed', 'expired') THEN
    outcome := 'too_late';
  END IF;
END $holdfast$;

-- Says what became of a key. It claims nothing.
CREATE OR REPLACE FUNCTION {schema}"{prefix}lookup"(namespace text, owner text, operation text, key bytea,
  fingerprint text DEFAULT NULL, version integer DEFAULT 0,
  OUT outcome text, OUT state text, OUT result text, OUT data bytea, OUT codec text, OUT business_id text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $holdfast$
#variable_conflict use_variable
DECLARE
  hash  bytea := {schema}"{prefix}key_hash"(namespace, owner, operation, key);
  asked bytea := {schema}"{prefix}fingerprint"(fingerprint, version);
  r     {schema}"{prefix}records";
BEGIN
  SELECT * INTO r FROM {schema}"{prefix}records" t WHERE t.owner = owner AND t.key_hash = hash;
  IF NOT FOUND OR r.key_expires_at <= {now} THEN
    IF pg_is_in_recovery() THEN
      RAISE EXCEPTION 'holdfast: a standby may lag behind, so {prefix}lookup cannot say absent there' USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Ask the primary.';
    ELSIF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') AND statement_timestamp() > transaction_timestamp() + interval '1 second' THEN
      RAISE EXCEPTION 'holdfast: the snapshot of this transaction may be older than the record, so {prefix}lookup cannot say absent' USING ERRCODE = 'object_not_in_prerequisite_state',
        HINT = 'Call it outside a transaction, or at READ COMMITTED.';
    END IF;
    outcome := 'absent';
    RETURN;
  END IF;
  SELECT j.* INTO outcome, state, result, data, codec, business_id FROM {schema}"{prefix}judge"(r.state, r.fingerprint, r.fingerprint_version, r.result, r.codec, r.business_id, r.result_expires_at, asked, version) j;
END $holdfast$;

-- The row of a lease: the kind, then the key. Not for clients.
CREATE OR REPLACE FUNCTION {schema}"{prefix}lease_row"(owner text, key bytea) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
  PERFORM {schema}"{prefix}check_bytes"('owner', convert_to(owner, 'UTF8'), 0, 128);
  PERFORM {schema}"{prefix}check_bytes"('key', key, 1, 1024);
  RETURN 'l'::bytea || key;
END $holdfast$;

-- Reads an attempt of 32 hexadecimal digits. Not for clients.
CREATE OR REPLACE FUNCTION {schema}"{prefix}attempt"(digits text) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $holdfast$
BEGIN
  IF digits IS NULL OR digits !~ '^[0-9a-fA-F]{32}$' THEN
    RAISE EXCEPTION 'holdfast: attempt is not 32 hexadecimal digits' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  RETURN decode(digits, 'hex');
END $holdfast$;

-- Tries to get a lease. Outside a transaction, with autocommit.
CREATE OR REPLACE FUNCTION {schema}"{prefix}acquire"(owner text, key bytea, ttl_us bigint, attempt text, holder text DEFAULT NULL,
  OUT outcome text, OUT token bigint, OUT left_us bigint, OUT held_by text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $holdfast$
#variable_conflict use_variable
DECLARE
  row_name bytea  := {schema}"{prefix}lease_row"(owner, key);
  mine     bytea  := {schema}"{prefix}attempt"(attempt);
  who      text   := COALESCE(holder, session_user || ' pid ' || pg_backend_pid());
  r        {schema}"{prefix}locks";
BEGIN
  IF ttl_us IS NULL OR ttl_us NOT BETWEEN 50000 AND 86400000000 THEN
    RAISE EXCEPTION 'holdfast: ttl_us is not between 50 ms and 24 h' USING ERRCODE = 'invalid_parameter_value';
  ELSIF octet_length(convert_to(who, 'UTF8')) > 255 THEN
    RAISE EXCEPTION 'holdfast: holder has more than 255 bytes' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  SELECT * INTO r FROM {schema}"{prefix}locks" l WHERE l.owner = owner AND l.name = row_name;
  IF NOT FOUND THEN
    -- The floor's lock comes before the key's: the reaper raises the floor before it deletes rows.
    INSERT INTO {schema}"{prefix}locks" AS l (owner, name, token, attempt, holder, granted_at, expires_at)
    SELECT owner, row_name, GREATEST(f.token + 1, c.now), mine, who, c.now, c.now + ttl_us
    FROM (SELECT t.token FROM {schema}"{prefix}floor" t WHERE t.id = 1 FOR SHARE) f, (SELECT {now} AS now) c
    ON CONFLICT DO NOTHING RETURNING l.token INTO token;
  ELSIF r.attempt IS NULL OR r.attempt = mine OR r.expires_at <= {now} THEN
    UPDATE {schema}"{prefix}locks" l SET attempt = mine, holder = who, granted_at = c.now,
     value = CASE WHEN l.attempt = mine AND l.expires_at > c.now THEN l.value END,
     token = CASE WHEN l.attempt = mine AND l.expires_at > c.now THEN l.token ELSE GREATEST(l.token + 1, c.now) END,
     terms = CASE WHEN l.attempt = mine AND l.expires_at > c.now THEN l.terms ELSE l.terms + 1 END,
     expires_at = CASE WHEN l.attempt = mine AND l.expires_at > c.now THEN GREATEST(l.expires_at, c.now + ttl_us) ELSE c.now + ttl_us END
    FROM (SELECT {now} AS now) c
    WHERE l.owner = owner AND l.name = (SELECT t.name FROM {schema}"{prefix}locks" t WHERE t.owner = owner AND t.name = row_name
     AND (t.attempt IS NULL OR t.attempt = mine OR t.expires_at <= {now}) FOR UPDATE SKIP LOCKED)
    RETURNING l.token INTO token;
  END IF;
  IF token IS NOT NULL THEN
    PERFORM {schema}"{prefix}called"('acquire', NULL, NULL, NULL);
    outcome := 'acquired';
    left_us := ttl_us;
    RETURN;
  END IF;
  outcome := 'held';
  SELECT GREATEST(l.expires_at - {now}, 0), l.holder INTO left_us, held_by FROM {schema}"{prefix}locks" l WHERE l.owner = owner AND l.name = row_name;
END $holdfast$;

-- Extends a live term. Outside a transaction, with autocommit.
CREATE OR REPLACE FUNCTION {schema}"{prefix}renew"(owner text, key bytea, attempt text, ttl_us bigint, OUT outcome text, OUT left_us bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $holdfast$
#variable_conflict use_variable
DECLARE
  row_name bytea := {schema}"{prefix}lease_row"(owner, key);
  mine     bytea := {schema}"{prefix}attempt"(attempt);
BEGIN
  IF ttl_us IS NULL OR ttl_us NOT BETWEEN 50000 AND 86400000000 THEN
    RAISE EXCEPTION 'holdfast: ttl_us is not between 50 ms and 24 h' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  -- A guarded transaction may have the row for long.
  UPDATE {schema}"{prefix}locks" l SET expires_at = GREATEST(l.expires_at, c.now + ttl_us) FROM (SELECT {now} AS now) c
  WHERE l.owner = owner AND l.name = (SELECT t.name FROM {schema}"{prefix}locks" t
   WHERE t.owner = owner AND t.name = row_name AND t.attempt = mine AND t.expires_at > {now} FOR UPDATE SKIP LOCKED)
  RETURNING l.expires_at - c.now INTO left_us;
  IF left_us IS NOT NULL THEN
    PERFORM {schema}"{prefix}called"('renew', NULL, NULL, NULL);
    outcome := 'renewed';
    RETURN;
  END IF;
  SELECT l.expires_at - {now} INTO left_us FROM {schema}"{prefix}locks" l WHERE l.owner = owner AND l.name = row_name AND l.attempt = mine AND l.expires_at > {now};
  outcome := CASE WHEN FOUND THEN 'busy' ELSE 'lost' END;
END $holdfast$;

-- Ends a term, and tells the processes that wait for the lock. Outside a transaction, with autocommit.
CREATE OR REPLACE FUNCTION {schema}"{prefix}release"(owner text, key bytea, attempt text, OUT outcome text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $holdfast$
#variable_conflict use_variable
DECLARE
  row_name bytea := {schema}"{prefix}lease_row"(owner, key);
  mine     bytea := {schema}"{prefix}attempt"(attempt);
BEGIN
  UPDATE {schema}"{prefix}locks" l SET attempt = NULL, expires_at = {now} WHERE l.owner = owner AND l.name = row_name AND l.attempt = mine;
  IF NOT FOUND THEN
    outcome := 'lost';
    RETURN;
  END IF;
  PERFORM {schema}"{prefix}called"('release', NULL, NULL, NULL);
  outcome := 'released';
  IF EXISTS (SELECT FROM {schema}"{prefix}waiters" w WHERE w.owner = owner AND w.name = row_name AND w.expires_at > {now}) THEN
    PERFORM pg_notify('holdfast_' || encode(f.store, 'hex'), encode(convert_to(owner, 'UTF8'), 'hex') || '/' || encode(row_name, 'hex') || '/' || encode(mine, 'hex'))
    FROM {schema}"{prefix}floor" f WHERE f.id = 1;
  END IF;
END $holdfast$;

-- Fails unless the term is the last one that was granted, and keeps the next one from being granted
-- until the caller's transaction ends. First in that transaction.
CREATE OR REPLACE FUNCTION {schema}"{prefix}guard"(owner text, key bytea, token bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $holdfast$
#variable_conflict use_variable
DECLARE
  row_name bytea := {schema}"{prefix}lease_row"(owner, key);
  has      bigint;
  held     boolean;
BEGIN
  -- By the name alone: a row that changed after the snapshot is then refused (40001).
  SELECT l.token, l.attempt IS NOT NULL INTO has, held FROM {schema}"{prefix}locks" l WHERE l.owner = owner AND l.name = row_name FOR SHARE;
  IF NOT FOUND AND current_setting('transaction_isolation') IN ('repeatable read', 'serializable') AND token > (date_part('epoch', now()) * 1000000)::bigint THEN
    RAISE EXCEPTION 'holdfast: the lease was granted after this transaction began: begin again' USING ERRCODE = 'serialization_failure';
  ELSIF NOT FOUND OR token IS NULL OR has <> token OR NOT held THEN
    RAISE EXCEPTION 'holdfast: the lease is lost: token % is not that of the lock', token USING HINT = 'Roll back. Another holder may have been granted the lock.';
  END IF;
  PERFORM {schema}"{prefix}called"('guard', NULL, NULL, NULL);
END $holdfast$;

-- The same with a key, and a result, of text: the bytes of its UTF-8.
CREATE OR REPLACE FUNCTION {schema}"{prefix}claim"(namespace text, owner text, operation text, key text,
  fingerprint text DEFAULT NULL, version integer DEFAULT 0, wait_us bigint DEFAULT 10000000,
  OUT outcome text, OUT claim text, OUT state text, OUT result text, OUT data bytea, OUT codec text, OUT business_id text, OUT detail text)
LANGUAGE sql AS $holdfast$ SELECT * FROM {schema}"{prefix}claim"($1, $2, $3, pg_catalog.convert_to($4, 'UTF8'), $5, $6, $7) $holdfast$;

CREATE OR REPLACE FUNCTION {schema}"{prefix}finish"(claim text, state text, result text, codec text DEFAULT 'json', business_id text DEFAULT NULL,
  result_ttl_us bigint DEFAULT NULL, key_ttl_us bigint DEFAULT NULL) RETURNS void
LANGUAGE sql AS $holdfast$ SELECT {schema}"{prefix}finish"($1, $2, pg_catalog.convert_to($3, 'UTF8'), $4, $5, $6, $7) $holdfast$;

CREATE OR REPLACE FUNCTION {schema}"{prefix}void"(namespace text, owner text, operation text, key text, reason text,
  key_ttl_us bigint DEFAULT NULL, wait_us bigint DEFAULT 10000000,
  OUT outcome text, OUT state text, OUT result text, OUT data bytea, OUT codec text, OUT business_id text, OUT detail text)
LANGUAGE sql AS $holdfast$ SELECT * FROM {schema}"{prefix}void"($1, $2, $3, pg_catalog.convert_to($4, 'UTF8'), $5, $6, $7) $holdfast$;

CREATE OR REPLACE FUNCTION {schema}"{prefix}lookup"(namespace text, owner text, operation text, key text,
  fingerprint text DEFAULT NULL, version integer DEFAULT 0,
  OUT outcome text, OUT state text, OUT result text, OUT data bytea, OUT codec text, OUT business_id text)
LANGUAGE sql AS $holdfast$ SELECT * FROM {schema}"{prefix}lookup"($1, $2, $3, pg_catalog.convert_to($4, 'UTF8'), $5, $6) $holdfast$;

CREATE OR REPLACE FUNCTION {schema}"{prefix}acquire"(owner text, key text, ttl_us bigint, attempt text, holder text DEFAULT NULL,
  OUT outcome text, OUT token bigint, OUT left_us bigint, OUT held_by text)
LANGUAGE sql AS $holdfast$ SELECT * FROM {schema}"{prefix}acquire"($1, pg_catalog.convert_to($2, 'UTF8'), $3, $4, $5) $holdfast$;

CREATE OR REPLACE FUNCTION {schema}"{prefix}renew"(owner text, key text, attempt text, ttl_us bigint, OUT outcome text, OUT left_us bigint)
LANGUAGE sql AS $holdfast$ SELECT * FROM {schema}"{prefix}renew"($1, pg_catalog.convert_to($2, 'UTF8'), $3, $4) $holdfast$;

CREATE OR REPLACE FUNCTION {schema}"{prefix}release"(owner text, key text, attempt text, OUT outcome text)
LANGUAGE sql AS $holdfast$ SELECT {schema}"{prefix}release"($1, pg_catalog.convert_to($2, 'UTF8'), $3) $holdfast$;

CREATE OR REPLACE FUNCTION {schema}"{prefix}guard"(owner text, key text, token bigint) RETURNS void
LANGUAGE sql AS $holdfast$ SELECT {schema}"{prefix}guard"($1, pg_catalog.convert_to($2, 'UTF8'), $3) $holdfast$;

REVOKE ALL ON {schema}"{prefix}calls" FROM PUBLIC;
REVOKE ALL ON FUNCTION
{functions} FROM PUBLIC;

COMMENT ON FUNCTION {schema}"{prefix}claim"(text, text, text, bytea, text, integer, bigint) IS '{text}';
