<?php
// A holder of leases in PHP, on PDO: see doc.go for its commands.
$config = json_decode($argv[1], true);
$postgres = $config['engine'] == 'postgres';
$db = new PDO(
    ($postgres ? 'pgsql' : 'mysql') . ":host={$config['host']};port={$config['port']};dbname={$config['database']}",
    $config['user'], $config['password'], [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]
);
if ($postgres) {
    $db->exec('SET search_path = "' . $config['schema'] . '"');
    $now = '(extract(epoch FROM clock_timestamp()) * 1000000)::bigint';
    $floor = '(SELECT token FROM holdfast_floor WHERE id = 1 FOR SHARE) f ON CONFLICT DO NOTHING RETURNING token';
    $bytes = "decode(?, 'hex')";
} else {
    $now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))";
    $floor = 'holdfast_floor f WHERE f.id = 1 LOCK IN SHARE MODE';
    $bytes = 'UNHEX(?)';
}

// Inserts the row of the lock above the floor, or takes a row over that is free.
function acquire($key, $ttl) {
    global $db, $postgres, $now, $floor, $bytes;
    $name = bin2hex("l$key");
    $attempt = bin2hex(random_bytes(16));
    $token = fn($t) => $postgres ? $t : "LAST_INSERT_ID($t)";
    $statements = [
        ["INSERT INTO holdfast_locks (owner, name, token, attempt, holder, granted_at, expires_at) SELECT '', $bytes, "
            . $token("GREATEST(f.token + 1, $now)") . ", $bytes, 'php', $now, $now + $ttl FROM $floor", [$name, $attempt]],
        ["UPDATE holdfast_locks SET token = " . $token("GREATEST(token + 1, $now)") . ", attempt = $bytes, holder = 'php', granted_at = $now, expires_at = $now + $ttl"
            . " WHERE owner = '' AND name = $bytes AND (attempt IS NULL OR expires_at <= $now)" . ($postgres ? ' RETURNING token' : ''), [$attempt, $name]],
    ];
    foreach ($statements as [$sql, $values]) {
        try {
            $statement = $db->prepare($sql);
            $statement->execute($values);
        } catch (PDOException $e) {
            if (substr($e->errorInfo[0], 0, 2) == '23') continue;
            throw $e;
        }
        if ($statement->rowCount() == 1) {
            return 'token ' . ($postgres ? $statement->fetchColumn() : $db->lastInsertId());
        }
    }
    return 'held';
}

function write($order, $token, $commit) {
    global $db, $postgres;
    try {
        $db->beginTransaction();
        $db->prepare("UPDATE orders SET state = 'php', fence = ? WHERE id = ?")->execute([$token, $order]);
        if ($commit) $db->commit();
        return 'ok';
    } catch (PDOException $e) {
        $db->rollBack();
        return 'refused ' . $e->errorInfo[$postgres ? 0 : 1];
    }
}

while (($line = fgets(STDIN)) !== false) {
    $words = explode(' ', trim($line));
    switch ($words[0]) {
        case 'acquire':
            $answer = acquire($words[1], (int) $words[2]);
            break;
        case 'commit':
            $db->commit();
            $answer = 'ok';
            break;
        default:
            $answer = write($words[1], (int) $words[2], $words[0] == 'write');
    }
    echo $answer, "\n";
}
