-- Holdfast's procedures for clients in other languages, version 1, MySQL and MariaDB.
-- See docs/protocol.md. Needs the tables of migration 1. Each statement may run again.
--
-- The procedures run with the rights of the user who creates them (SQL SECURITY DEFINER) and with the
-- sql_mode below, also if the caller has another one. A client needs EXECUTE on those that it calls, and no
-- right to the tables. No argument becomes SQL. KILL QUERY ends a procedure and skips its handlers, so none
-- begins a transaction, and none sets a variable of the session that it would have to restore.
SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION';
SET NAMES utf8mb4 COLLATE utf8mb4_bin;
DELIMITER //

-- Refuses a session whose clock stands still, and a value that a column would not store unchanged.
DROP PROCEDURE IF EXISTS {schema}`{prefix}check`//
CREATE PROCEDURE {schema}`{prefix}check`(IN p_argument VARCHAR(32) CHARACTER SET utf8mb4, IN p_value LONGBLOB, IN p_least INT, IN p_most INT, IN p_text BOOLEAN)
SQL SECURITY DEFINER COMMENT '{text}'
BEGIN
  DECLARE v_message VARCHAR(128) CHARACTER SET utf8mb4 DEFAULT NULL;
  IF p_value IS NULL OR LENGTH(p_value) < p_least OR LENGTH(p_value) > p_most THEN
    SET v_message = CONCAT('holdfast: ', p_argument, ' has ', COALESCE(LENGTH(p_value), 'no'), ' bytes, not ', p_least, ' to ', p_most);
  ELSEIF p_text AND (LOCATE(X'00', p_value) > 0 OR COALESCE(CAST(CONVERT(p_value USING utf8mb4) AS BINARY) <> p_value, TRUE)) THEN
    SET v_message = CONCAT('holdfast: ', p_argument, ' is not UTF-8 without NUL: set the connection''s character set to utf8mb4');
  ELSEIF ABS({clock} - {now}) > 10000000 THEN
    SET v_message = 'holdfast: this session''s clock stands still: SET timestamp = DEFAULT';
  END IF;
  IF v_message IS NOT NULL THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = v_message;
  END IF;
END//

-- Whether the session is in a transaction: outside one, a savepoint does not persist.
DROP PROCEDURE IF EXISTS {schema}`{prefix}in_transaction`//
CREATE PROCEDURE {schema}`{prefix}in_transaction`(OUT p_is BOOLEAN)
SQL SECURITY DEFINER COMMENT '{text}'
BEGIN
  DECLARE EXIT HANDLER FOR 1305 SET p_is = FALSE;
  SAVEPOINT holdfast_alive;
  RELEASE SAVEPOINT holdfast_alive;
  SET p_is = TRUE;
END//

-- Ends the savepoint of the session's claims. p_is is FALSE if their transaction has ended.
DROP PROCEDURE IF EXISTS {schema}`{prefix}still_claims`//
CREATE PROCEDURE {schema}`{prefix}still_claims`(OUT p_is BOOLEAN)
SQL SECURITY DEFINER COMMENT '{text}'
BEGIN
  DECLARE EXIT HANDLER FOR 1305 SET p_is = FALSE;
  RELEASE SAVEPOINT holdfast_claims;
  SET p_is = TRUE;
END//

-- SHA-256 over 'holdfast record 1' and the four parts, each behind its length in eight bytes.
DROP PROCEDURE IF EXISTS {schema}`{prefix}key_hash`//
CREATE PROCEDURE {schema}`{prefix}key_hash`(IN p_namespace LONGBLOB, IN p_owner LONGBLOB, IN p_operation LONGBLOB, IN p_key LONGBLOB, OUT p_hash BINARY(32))
SQL SECURITY DEFINER COMMENT '{text}'
BEGIN
  CALL {schema}`{prefix}check`('namespace', p_namespace, 1, 128, TRUE);
  CALL {schema}`{prefix}check`('owner', p_owner, 0, 128, TRUE);
  CALL {schema}`{prefix}check`('operation', p_operation, 1, 128, TRUE);
  CALL {schema}`{prefix}check`('key', p_key, 1, 1024, FALSE);
  SET p_hash = UNHEX(SHA2(CONCAT(CAST('holdfast record 1' AS BINARY), UNHEX(LPAD(HEX(LENGTH(p_namespace)), 16, '0')), p_namespace,
   UNHEX(LPAD(HEX(LENGTH(p_owner)), 16, '0')), p_owner, UNHEX(LPAD(HEX(LENGTH(p_operation)), 16, '0')), p_operation,
   UNHEX(LPAD(HEX(LENGTH(p_key)), 16, '0')), p_key), 256));
END//

-- Reads a fingerprint of 64 hexadecimal digits; NULL is none.
DROP PROCEDURE IF EXISTS {schema}`{prefix}fingerprint`//
CREATE PROCEDURE {schema}`{prefix}fingerprint`(IN p_digits LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_version INT, OUT p_fingerprint VARBINARY(32))
SQL SECURITY DEFINER COMMENT '{text}'
BEGIN
  -- default_regex_flags may change what a pattern means, so the digits are read too.
  IF p_digits IS NOT NULL AND (NOT p_digits REGEXP '^[0-9a-fA-F]{64}$' OR LENGTH(p_digits) <> 64 OR UNHEX(p_digits) IS NULL) THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'holdfast: fingerprint is not 64 hexadecimal digits, nor NULL';
  ELSEIF p_version IS NULL OR p_version NOT BETWEEN 0 AND 2047 THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'holdfast: version is not between 0 and 2047';
  END IF;
  SET p_fingerprint = UNHEX(p_digits);
END//

-- Claims a key in the caller's transaction, as claim and void do.
DROP PROCEDURE IF EXISTS {schema}`{prefix}claim_key`//
CREATE PROCEDURE {schema}`{prefix}claim_key`(IN p_namespace LONGBLOB, IN p_owner LONGBLOB, IN p_operation LONGBLOB, IN p_key LONGBLOB,
  IN p_fingerprint LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_version INT, IN p_wait_us BIGINT,
  OUT p_outcome VARCHAR(16) CHARACTER SET utf8mb4, OUT p_claim VARCHAR(352) CHARACTER SET utf8mb4, OUT p_state VARCHAR(16) CHARACTER SET utf8mb4, OUT p_result LONGBLOB,
  OUT p_codec VARCHAR(80) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT p_business_id VARBINARY(255), OUT p_detail VARCHAR(128) CHARACTER SET utf8mb4)
SQL SECURITY DEFINER COMMENT '{text}'
BEGIN
  DECLARE v_owner, v_namespace, v_operation VARBINARY(128);
  DECLARE v_hash BINARY(32);
  DECLARE v_asked, v_has VARBINARY(32);
  DECLARE v_attempt, v_winner BINARY(16);
  DECLARE v_state, v_version, v_tries, v_expired, v_free INT DEFAULT 0;
  DECLARE v_result LONGBLOB;
  DECLARE v_codec VARCHAR(80) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
  DECLARE v_business_id VARBINARY(255);
  DECLARE v_in, v_found, v_busy BOOLEAN DEFAULT FALSE;
  DECLARE v_wait INT UNSIGNED;
  DECLARE v_message VARCHAR(128) CHARACTER SET utf8mb4;

  IF p_wait_us IS NULL OR p_wait_us NOT BETWEEN 0 AND 3600000000 THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'holdfast: wait_us is not between 0 and an hour';
  END IF;
  SET v_wait = IF(p_wait_us = 0, {no_wait}, (p_wait_us + 999999) DIV 1000000);
  IF {session_waits} AND @@SESSION.innodb_lock_wait_timeout > v_wait THEN
    SET v_message = CONCAT('holdfast: wait_us is shorter than this session waits: SET SESSION innodb_lock_wait_timeout = ', v_wait, ' when you connect');
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = v_message;
  END IF;
  CALL {schema}`{prefix}in_transaction`(v_in);
  IF NOT v_in THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'holdfast: {prefix}claim ran outside a transaction, with autocommit=1: START TRANSACTION first';
  END IF;
  CALL {schema}`{prefix}key_hash`(p_namespace, p_owner, p_operation, p_key, v_hash);
  CALL {schema}`{prefix}fingerprint`(p_fingerprint, p_version, v_asked);
  SET v_owner = p_owner, v_namespace = p_namespace, v_operation = p_operation;

  -- Claims of one transaction share its epoch, the first half of their attempts, and one savepoint.
  -- It is gone after a COMMIT or a ROLLBACK, of any kind.
  IF COALESCE(@holdfast_open, 0) > 0 THEN
    CALL {schema}`{prefix}still_claims`(v_in);
    IF NOT v_in THEN
      SET @holdfast_open = 0;
    END IF;
  END IF;
  IF COALESCE(@holdfast_open, 0) = 0 THEN
    SET @holdfast_open = 0, @holdfast_epoch = LEFT(UNHEX(SHA2(CONCAT(UUID(), RAND()), 256)), 8);
  END IF;
  SAVEPOINT holdfast_claims;
  SET v_attempt = CONCAT(@holdfast_epoch, LEFT(UNHEX(SHA2(CONCAT(UUID(), RAND()), 256)), 8));

  claiming: LOOP
    BEGIN
      DECLARE CONTINUE HANDLER FOR 1205 SET v_busy = TRUE;
      -- Before any read, which would fix a snapshot that may be older than the claim.
      {waiting}INSERT INTO {schema}`{prefix}records` (owner, key_hash, namespace, operation, op_key, fingerprint, fingerprint_version, attempt, state, created_at)
      VALUES (v_owner, v_hash, v_namespace, v_operation, p_key, v_asked, p_version * 16 + 2, v_attempt, 1, {now})
      ON DUPLICATE KEY UPDATE state = state;
    END;
    IF v_busy THEN
      SET p_outcome = 'in_progress';
      LEAVE claiming;
    END IF;
    BEGIN
      DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_found = FALSE;
      SET v_found = TRUE;
      {waiting}SELECT r.attempt, r.state, r.fingerprint, r.fingerprint_version, r.result, r.codec, r.business_id,
       COALESCE(r.result_expires_at <= {now}, 0), COALESCE(r.key_expires_at <= {now}, 0)
      INTO v_winner, v_state, v_has, v_version, v_result, v_codec, v_business_id, v_expired, v_free
      FROM {schema}`{prefix}records` r WHERE r.owner = v_owner AND r.key_hash = v_hash FOR UPDATE;
    END;
    IF NOT v_found OR v_tries > 2 THEN
      SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'holdfast: the record that was claimed is not there: is a trigger on the table?';
    ELSEIF v_winner = v_attempt THEN
      SET p_outcome = 'claimed';
      LEAVE claiming;
    ELSEIF NOT v_free THEN
      LEAVE claiming;
    END IF;
    -- The key's life is over, so it is free again.
    {waiting}DELETE FROM {schema}`{prefix}records` WHERE owner = v_owner AND key_hash = v_hash AND key_expires_at <= {now};
    SET v_tries = v_tries + 1;
  END LOOP;

  IF p_outcome = 'claimed' THEN
    SET @holdfast_open = @holdfast_open + 1;
  ELSEIF p_outcome = 'in_progress' THEN
    CALL {schema}`{prefix}still_claims`(v_in); -- innodb_rollback_on_timeout ends it
    IF v_in THEN
      SAVEPOINT holdfast_claims;
    END IF;
  ELSEIF v_has <> v_asked AND v_version = p_version * 16 + 2 THEN
    SET p_outcome = 'mismatch';
  ELSEIF v_state = 1 THEN
    SET p_outcome = 'unknown';
  ELSEIF v_state >= 4 OR v_expired THEN
    SET p_outcome = 'expired';
  ELSE
    SET p_outcome = 'replayed';
  END IF;
  SET p_claim = IF(p_outcome = 'claimed', LOWER(HEX(CONCAT(v_attempt, v_hash, v_owner))), NULL),
   p_state = IF(p_outcome IN ('replayed', 'expired'), IF(v_state IN (2, 4), 'succeeded', 'rejected'), NULL),
   p_result = IF(p_outcome = 'replayed', COALESCE(v_result, ''), NULL),
   p_codec = IF(p_outcome = 'replayed', v_codec, NULL),
   p_business_id = IF(p_outcome IN ('replayed', 'expired'), v_business_id, NULL),
   p_detail = IF(p_outcome = 'in_progress', CONCAT('another transaction has held the key for the whole wait of ', p_wait_us, ' us', IF(v_in, '', '; this transaction is rolled back')), NULL);
END//

-- Claims a key in the caller's transaction. See docs/protocol.md for what it returns.
DROP PROCEDURE IF EXISTS {schema}`{prefix}claim`//
CREATE PROCEDURE {schema}`{prefix}claim`(IN p_namespace LONGBLOB, IN p_owner LONGBLOB, IN p_operation LONGBLOB, IN p_key LONGBLOB,
  IN p_fingerprint LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_version INT, IN p_wait_us BIGINT)
SQL SECURITY DEFINER COMMENT '{text}'
BEGIN
  DECLARE v_outcome, v_state VARCHAR(16) CHARACTER SET utf8mb4;
  DECLARE v_claim VARCHAR(352) CHARACTER SET utf8mb4;
  DECLARE v_result LONGBLOB;
  DECLARE v_codec VARCHAR(80) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
  DECLARE v_business_id VARBINARY(255);
  DECLARE v_detail VARCHAR(128) CHARACTER SET utf8mb4;
  CALL {schema}`{prefix}claim_key`(p_namespace, p_owner, p_operation, p_key, p_fingerprint, p_version, p_wait_us, v_outcome, v_claim, v_state, v_result, v_codec, v_business_id, v_detail);
  SELECT v_outcome AS outcome, v_claim AS claim, v_state AS state, IF(v_codec = 'json', CONVERT(v_result USING utf8mb4), NULL) AS result,
   IF(v_codec <> 'json', v_result, NULL) AS data, v_codec AS codec, CONVERT(v_business_id USING utf8mb4) AS business_id, v_detail AS detail;
END//

-- Stores the result of a claim, in the transaction that has claimed.
DROP PROCEDURE IF EXISTS {schema}`{prefix}finish`//
CREATE PROCEDURE {schema}`{prefix}finish`(IN p_claim LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_state LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
  IN p_result LONGBLOB, IN p_codec LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_business_id LONGBLOB, IN p_result_ttl_us BIGINT, IN p_key_ttl_us BIGINT)
SQL SECURITY DEFINER COMMENT '{text}'
BEGIN
  DECLARE v_handle VARBINARY(176);
  DECLARE v_alive BOOLEAN DEFAULT FALSE;
  DECLARE v_text LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
  DECLARE v_message VARCHAR(128) CHARACTER SET utf8mb4 DEFAULT NULL;
  IF p_claim IS NULL OR NOT p_claim REGEXP '^[0-9a-f]+$' OR UNHEX(p_claim) IS NULL OR LENGTH(p_claim) NOT BETWEEN 96 AND 352 OR LENGTH(p_claim) % 2 = 1 THEN
    SET v_message = 'claim is not what {prefix}claim returned';
  ELSEIF p_state IS NULL OR p_state NOT IN ('succeeded', 'rejected') THEN
    SET v_message = 'state is neither succeeded nor rejected';
  ELSEIF p_codec IS NULL OR NOT p_codec REGEXP '^(json|bytes)([+][A-Za-z0-9_.:-]{1,64})?$' THEN
    SET v_message = 'codec is neither json nor bytes, with or without + and a name';
  ELSEIF p_state = 'rejected' AND NOT p_codec REGEXP '^json' THEN
    SET v_message = 'a rejection is JSON: {"code": "...", "message": "..."}';
  ELSEIF LENGTH(p_result) > 15728640 THEN
    SET v_message = 'result has more than 15 MiB';
  ELSEIF p_result_ttl_us NOT BETWEEN 50000 AND 3162240000000000 OR p_key_ttl_us NOT BETWEEN 50000 AND 3162240000000000 THEN
    SET v_message = 'a TTL is not between 50 ms and a century, in microseconds: NULL keeps for ever';
  ELSEIF p_key_ttl_us IS NOT NULL AND (p_result_ttl_us IS NULL OR p_result_ttl_us > p_key_ttl_us) THEN
    SET v_message = 'key_ttl_us is shorter than result_ttl_us: a result cannot outlive its key';
  ELSEIF p_codec = 'json' THEN
    SET v_text = CONVERT(p_result USING utf8mb4);
    IF v_text IS NULL OR NOT JSON_VALID(v_text) THEN
      SET v_message = 'result is not JSON';
    ELSEIF p_state = 'rejected' AND COALESCE(JSON_TYPE(JSON_EXTRACT(v_text, '$.code')) <> 'STRING', TRUE) THEN
      SET v_message = 'a rejection is JSON: {"code": "...", "message": "..."}';
    END IF;
  END IF;
  IF v_message IS NOT NULL THEN
    SET v_message = CONCAT('holdfast: ', v_message);
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = v_message;
  END IF;
  IF p_business_id IS NOT NULL THEN
    CALL {schema}`{prefix}check`('business_id', p_business_id, 0, 255, TRUE);
  END IF;

  SET v_handle = UNHEX(p_claim);
  IF LEFT(v_handle, 8) <=> @holdfast_epoch AND @holdfast_open > 0 THEN
    CALL {schema}`{prefix}still_claims`(v_alive);
  END IF;
  IF NOT v_alive THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'holdfast: the claim''s transaction has ended (COMMIT, DDL, a deadlock?), or it was finished: ROLLBACK, then look the key up';
  END IF;
  UPDATE {schema}`{prefix}records` SET state = IF(p_state = 'succeeded', 2, 3), result = p_result, codec = p_codec, business_id = NULLIF(p_business_id, ''),
   finished_at = {now}, result_expires_at = {now} + p_result_ttl_us, key_expires_at = {now} + p_key_ttl_us,
   holder = LEFT(CONCAT(SESSION_USER(), ' connection ', CONNECTION_ID()), 255)
  WHERE owner = SUBSTR(v_handle, 49) AND key_hash = SUBSTR(v_handle, 17, 32) AND attempt = SUBSTR(v_handle, 1, 16) AND state = 1;
  IF ROW_COUNT() <> 1 THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'holdfast: this transaction does not have the claim: it was finished already, or undone by ROLLBACK TO SAVEPOINT';
  END IF;
  SET @holdfast_open = @holdfast_open - 1;
  IF @holdfast_open > 0 THEN
    SAVEPOINT holdfast_claims;
  END IF;
END//

-- Ends a key that was not used, in the caller's transaction: a later claim of it replays a rejection.
DROP PROCEDURE IF EXISTS {schema}`{prefix}void`//
CREATE PROCEDURE {schema}`{prefix}void`(IN p_namespace LONGBLOB, IN p_owner LONGBLOB, IN p_operation LONGBLOB, IN p_key LONGBLOB, IN p_reason LONGBLOB,
  IN p_key_ttl_us BIGINT, IN p_wait_us BIGINT)
SQL SECURITY DEFINER COMMENT '{text}'
BEGIN
  DECLARE v_outcome, v_state VARCHAR(16) CHARACTER SET utf8mb4;
  DECLARE v_claim VARCHAR(352) CHARACTER SET utf8mb4;
  DECLARE v_result LONGBLOB;
  DECLARE v_codec VARCHAR(80) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
  DECLARE v_business_id VARBINARY(255);
  DECLARE v_detail VARCHAR(128) CHARACTER SET utf8mb4;
  CALL {schema}`{prefix}check`('reason', p_reason, 1, 500, TRUE);
  CALL {schema}`{prefix}claim_key`(p_namespace, p_owner, p_operation, p_key, NULL, 0, p_wait_us, v_outcome, v_claim, v_state, v_result, v_codec, v_business_id, v_detail);
  IF v_outcome = 'claimed' THEN
    CALL {schema}`{prefix}finish`(v_claim, 'rejected', JSON_OBJECT('code', 'voided', 'message', CONVERT(p_reason USING utf8mb4)), 'json', NULL, p_key_ttl_us, p_key_ttl_us);
    SET v_outcome = 'voided';
  ELSEIF v_outcome = 'replayed' AND v_state = 'rejected' AND v_codec = 'json' AND JSON_UNQUOTE(JSON_EXTRACT(CONVERT(v_result USING utf8mb4), '$.code')) = 'voided' THEN
    SET v_outcome = 'voided', v_state = NULL, v_result = NULL, v_codec = NULL;
  ELSEIF v_outcome IN ('replayed', 'expired') THEN
    SET v_outcome = 'too_late';
  END IF;
  SELECT v_outcome AS outcome, v_state AS state, IF(v_codec = 'json', CONVERT(v_result USING utf8mb4), NULL) AS result,
   IF(v_codec <> 'json', v_result, NULL) AS data, v_codec AS codec, CONVERT(v_business_id USING utf8mb4) AS business_id, v_detail AS detail;
END//

-- Says what became of a key. It claims nothing. Outside a transaction, with autocommit.
DROP PROCEDURE IF EXISTS {schema}`{prefix}lookup`//
CREATE PROCEDURE {schema}`{prefix}lookup`(IN p_namespace LONGBLOB, IN p_owner LONGBLOB, IN p_operation LONGBLOB, IN p_key LONGBLOB,
  IN p_fingerprint LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_version INT)
SQL SECURITY DEFINER COMMENT '{text}'
BEGIN
  DECLARE v_owner VARBINARY(128);
  DECLARE v_hash BINARY(32);
  DECLARE v_asked, v_has VARBINARY(32);
  DECLARE v_state, v_version, v_expired INT DEFAULT 0;
  DECLARE v_result LONGBLOB;
  DECLARE v_codec VARCHAR(80) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
  DECLARE v_business_id VARBINARY(255);
  DECLARE v_in BOOLEAN DEFAULT FALSE;
  DECLARE v_outcome VARCHAR(16) CHARACTER SET utf8mb4 DEFAULT NULL;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_outcome = 'absent';
  CALL {schema}`{prefix}in_transaction`(v_in);
  IF v_in THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'holdfast: {prefix}lookup ran inside a transaction, or with autocommit=0: call it outside, with autocommit=1';
  END IF;
  CALL {schema}`{prefix}key_hash`(p_namespace, p_owner, p_operation, p_key, v_hash);
  CALL {schema}`{prefix}fingerprint`(p_fingerprint, p_version, v_asked);
  SET v_owner = p_owner;
  -- What is committed: at READ UNCOMMITTED by a lock that waits for nothing.
  SELECT r.state, r.fingerprint, r.fingerprint_version, r.result, r.codec, r.business_id, COALESCE(r.result_expires_at <= {now}, 0)
  INTO v_state, v_has, v_version, v_result, v_codec, v_business_id, v_expired
  FROM {schema}`{prefix}records` r WHERE r.owner = v_owner AND r.key_hash = v_hash AND COALESCE(r.key_expires_at > {now}, 1)
   AND @@SESSION.{isolation} <> 'READ-UNCOMMITTED';
  IF @@SESSION.{isolation} = 'READ-UNCOMMITTED' THEN
    SET v_outcome = NULL;
    SELECT r.state, r.fingerprint, r.fingerprint_version, r.result, r.codec, r.business_id, COALESCE(r.result_expires_at <= {now}, 0)
    INTO v_state, v_has, v_version, v_result, v_codec, v_business_id, v_expired
    FROM {schema}`{prefix}records` r WHERE r.owner = v_owner AND r.key_hash = v_hash AND COALESCE(r.key_expires_at > {now}, 1) {share} SKIP LOCKED;
  END IF;
  IF v_outcome IS NULL THEN
    SET v_outcome = CASE WHEN v_has <> v_asked AND v_version = p_version * 16 + 2 THEN 'mismatch' WHEN v_state = 1 THEN 'unknown'
     WHEN v_state >= 4 OR v_expired THEN 'expired' ELSE 'replayed' END;
  ELSE
    -- A claim that is not committed has its row locked.
    BEGIN
      DECLARE v_there INT DEFAULT 0;
      DECLARE CONTINUE HANDLER FOR {locked} SET v_outcome = 'in_progress';
      {at_once}SELECT COUNT(*) INTO v_there FROM {schema}`{prefix}records` r WHERE r.owner = v_owner AND r.key_hash = v_hash AND r.state = 1 {share}{nowait};
      IF v_there > 0 THEN -- it has just been committed
        SET v_outcome = 'in_progress';
      END IF;
    END;
    IF v_outcome = 'absent' AND (CAST(@@GLOBAL.read_only AS CHAR) NOT IN ('0', 'OFF') OR @@GLOBAL.innodb_read_only) THEN
      SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'holdfast: a server that is read-only may lag behind, so {prefix}lookup cannot say absent there: ask the primary';
    END IF;
  END IF;
  SELECT v_outcome AS outcome,
   IF(v_outcome IN ('replayed', 'expired'), IF(v_state IN (2, 4), 'succeeded', 'rejected'), NULL) AS state,
   IF(v_outcome = 'replayed' AND v_codec = 'json', CONVERT(v_result USING utf8mb4), NULL) AS result,
   IF(v_outcome = 'replayed' AND v_codec <> 'json', COALESCE(v_result, ''), NULL) AS data,
   IF(v_outcome = 'replayed', v_codec, NULL) AS codec,
   IF(v_outcome IN ('replayed', 'expired'), CONVERT(v_business_id USING utf8mb4), NULL) AS business_id;
END//

-- Checks the arguments of a lease's call, and that no transaction is open.
DROP PROCEDURE IF EXISTS {schema}`{prefix}check_lease`//
CREATE PROCEDURE {schema}`{prefix}check_lease`(IN p_owner LONGBLOB, IN p_key LONGBLOB, IN p_attempt LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
  IN p_ttl_us BIGINT, OUT p_name VARBINARY(1025), OUT p_mine BINARY(16))
SQL SECURITY DEFINER COMMENT '{text}'
BEGIN
  DECLARE v_in BOOLEAN DEFAULT FALSE;
  CALL {schema}`{prefix}in_transaction`(v_in);
  IF v_in THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'holdfast: a lease''s call ran inside a transaction, or with autocommit=0: call it outside, with autocommit=1';
  END IF;
  CALL {schema}`{prefix}check`('owner', p_owner, 0, 128, TRUE);
  CALL {schema}`{prefix}check`('key', p_key, 1, 1024, FALSE);
  IF p_attempt IS NULL OR NOT p_attempt REGEXP '^[0-9a-fA-F]{32}$' OR LENGTH(p_attempt) <> 32 OR UNHEX(p_attempt) IS NULL THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'holdfast: attempt is not 32 hexadecimal digits';
  ELSEIF p_ttl_us IS NULL OR p_ttl_us NOT BETWEEN 50000 AND 86400000000 THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'holdfast: ttl_us is not between 50 ms and 24 h';
  END IF;
  SET p_name = CONCAT(CAST('l' AS BINARY), p_key), p_mine = UNHEX(p_attempt);
END//

-- Tries to get a lease. Outside a transaction, with autocommit.
DROP PROCEDURE IF EXISTS {schema}`{prefix}acquire`//
CREATE PROCEDURE {schema}`{prefix}acquire`(IN p_owner LONGBLOB, IN p_key LONGBLOB, IN p_ttl_us BIGINT,
  IN p_attempt LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_holder LONGBLOB)
SQL SECURITY DEFINER COMMENT '{text}'
BEGIN
  DECLARE v_owner VARBINARY(128);
  DECLARE v_name VARBINARY(1025);
  DECLARE v_mine BINARY(16);
  DECLARE v_holder, v_who VARBINARY(255);
  DECLARE v_token, v_left BIGINT;
  DECLARE v_wrote INT DEFAULT 0;
  DECLARE v_there, v_free BOOLEAN DEFAULT FALSE;
  CALL {schema}`{prefix}check_lease`(p_owner, p_key, p_attempt, p_ttl_us, v_name, v_mine);
  IF p_holder IS NULL THEN
    SET v_who = LEFT(CONCAT(SESSION_USER(), ' connection ', CONNECTION_ID()), 255);
  ELSE
    CALL {schema}`{prefix}check`('holder', p_holder, 1, 255, TRUE);
    SET v_who = p_holder;
  END IF;
  SET v_owner = p_owner;

  BEGIN
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_there = FALSE;
    SET v_there = TRUE;
    SELECT COALESCE(l.attempt = v_mine, TRUE) OR l.expires_at <= {now} INTO v_free FROM {schema}`{prefix}locks` l WHERE l.owner = v_owner AND l.name = v_name;
  END;
  -- Each statement is a transaction of its own, and the one that grants is Go's.
  IF NOT v_there THEN
    BEGIN
      DECLARE CONTINUE HANDLER FOR 1062 SET v_there = TRUE;
      INSERT INTO {schema}`{prefix}locks` (owner, name, token, attempt, holder, granted_at, expires_at)
      SELECT v_owner, v_name, GREATEST(f.token + 1, {now}), v_mine, v_who, {now}, {now} + p_ttl_us FROM {schema}`{prefix}floor` f WHERE f.id = 1 LOCK IN SHARE MODE;
      SET v_wrote = ROW_COUNT();
    END;
  ELSEIF v_free THEN
    BEGIN
      DECLARE CONTINUE HANDLER FOR {locked} SET v_free = FALSE; -- a guarded transaction has the row
      {take};
      SET v_wrote = ROW_COUNT();
    END;
  END IF;
  -- A term that this call was granted is told even if it is over by now. One of an earlier call, whose row
  -- a guarded transaction has, was not extended: the client would trust it for too long.
  SELECT MAX(IF(l.attempt = v_mine AND v_wrote > 0, l.token, NULL)), MAX(IF(l.attempt IS NULL, 0, GREATEST(l.expires_at - {now}, 0))), MAX(l.holder)
  INTO v_token, v_left, v_holder FROM {schema}`{prefix}locks` l WHERE l.owner = v_owner AND l.name = v_name;
  IF v_token IS NOT NULL THEN
    SELECT 'acquired' AS outcome, v_token AS token, p_ttl_us AS left_us, NULL AS held_by;
  ELSE
    SELECT 'held' AS outcome, NULL AS token, v_left AS left_us, CONVERT(v_holder USING utf8mb4) AS held_by;
  END IF;
END//

-- Extends a live term. Outside a transaction, with autocommit.
DROP PROCEDURE IF EXISTS {schema}`{prefix}renew`//
CREATE PROCEDURE {schema}`{prefix}renew`(IN p_owner LONGBLOB, IN p_key LONGBLOB, IN p_attempt LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_ttl_us BIGINT)
SQL SECURITY DEFINER COMMENT '{text}'
BEGIN
  DECLARE v_owner VARBINARY(128);
  DECLARE v_name VARBINARY(1025);
  DECLARE v_mine BINARY(16);
  DECLARE v_now, v_expires BIGINT;
  DECLARE v_wrote INT;
  CALL {schema}`{prefix}check_lease`(p_owner, p_key, p_attempt, p_ttl_us, v_name, v_mine);
  SET v_owner = p_owner, v_now = {now};
  -- A guarded transaction may have the row for long.
  {renew};
  SET v_wrote = ROW_COUNT();
  SELECT MAX(l.expires_at) INTO v_expires FROM {schema}`{prefix}locks` l WHERE l.owner = v_owner AND l.name = v_name AND l.attempt = v_mine AND l.expires_at > {now};
  SELECT CASE WHEN v_expires IS NULL THEN 'lost' WHEN v_wrote > 0 OR v_expires >= v_now + p_ttl_us THEN 'renewed' ELSE 'busy' END AS outcome, v_expires - {now} AS left_us;
END//

-- Ends a term. Outside a transaction, with autocommit.
DROP PROCEDURE IF EXISTS {schema}`{prefix}release`//
CREATE PROCEDURE {schema}`{prefix}release`(IN p_owner LONGBLOB, IN p_key LONGBLOB, IN p_attempt LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
SQL SECURITY DEFINER COMMENT '{text}'
BEGIN
  DECLARE v_owner VARBINARY(128);
  DECLARE v_name VARBINARY(1025);
  DECLARE v_mine BINARY(16);
  CALL {schema}`{prefix}check_lease`(p_owner, p_key, p_attempt, 1000000, v_name, v_mine);
  SET v_owner = p_owner;
  UPDATE {schema}`{prefix}locks` SET attempt = NULL, expires_at = {now} WHERE owner = v_owner AND name = v_name AND attempt = v_mine;
  SELECT IF(ROW_COUNT() = 1, 'released', 'lost') AS outcome;
END//

-- Fails unless the term is the last one that was granted, and keeps the next one from being granted
-- until the caller's transaction ends. First in that transaction. A failure rolls it back.
DROP PROCEDURE IF EXISTS {schema}`{prefix}guard`//
CREATE PROCEDURE {schema}`{prefix}guard`(IN p_owner LONGBLOB, IN p_key LONGBLOB, IN p_token BIGINT)
SQL SECURITY DEFINER COMMENT '{text}'
BEGIN
  DECLARE v_owner VARBINARY(128);
  DECLARE v_name VARBINARY(1025);
  DECLARE v_in, v_shown BOOLEAN DEFAULT FALSE;
  DECLARE v_found BOOLEAN DEFAULT TRUE;
  CALL {schema}`{prefix}in_transaction`(v_in);
  IF NOT v_in THEN
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'holdfast: {prefix}guard ran outside a transaction, with autocommit=1: START TRANSACTION first';
  END IF;
  CALL {schema}`{prefix}check`('owner', p_owner, 0, 128, TRUE);
  CALL {schema}`{prefix}check`('key', p_key, 1, 1024, FALSE);
  SET v_owner = p_owner, v_name = CONCAT(CAST('l' AS BINARY), p_key);
  BEGIN
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_found = FALSE;
    -- The inner read is a plain one: it shows what the transaction's snapshot shows.
    SELECT COALESCE((SELECT s.token FROM {schema}`{prefix}locks` s WHERE s.owner = l.owner AND s.name = l.name), 0) = l.token INTO v_shown
    FROM {schema}`{prefix}locks` l WHERE l.owner = v_owner AND l.name = v_name AND l.token = p_token AND l.attempt IS NOT NULL LOCK IN SHARE MODE;
  END;
  IF NOT v_found THEN
    ROLLBACK AND NO CHAIN NO RELEASE;
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'holdfast: the lease is lost: the token is not that of the lock; the transaction is rolled back';
  ELSEIF NOT v_shown THEN
    ROLLBACK AND NO CHAIN NO RELEASE;
    SIGNAL SQLSTATE '40001' SET MESSAGE_TEXT = 'holdfast: the lease was granted after this transaction''s snapshot: begin again; the transaction is rolled back';
  END IF;
END//

DELIMITER ;
