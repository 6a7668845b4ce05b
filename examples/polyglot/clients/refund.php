<?php // Refunds an order once. Reads lines "order cents", answers "order outcome refund".
$e = getenv();
$postgres = $e['DB_ENGINE'] === 'postgres';
$db = new PDO(($postgres ? 'pgsql' : 'mysql') . ":host={$e['DB_HOST']};port={$e['DB_PORT']};dbname={$e['DB_NAME']}" . ($postgres ? '' : ';charset=utf8mb4'),
    $e['DB_USER'], $e['DB_PASSWORD'], [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
if ($postgres) {
    $db->exec("SET search_path = {$e['DB_SCHEMA']}");
}
$claim = $postgres ? "SELECT * FROM holdfast_claim('polyglot', 'shop-7', 'refund', ?::text, ?)"
    : "CALL holdfast_claim('polyglot', 'shop-7', 'refund', ?, ?, 0, 10000000)";
$finish = $postgres ? "SELECT holdfast_finish(?, 'succeeded', ?::text)" : "CALL holdfast_finish(?, 'succeeded', ?, 'json', NULL, NULL, NULL)";

function rows(string $sql, ...$values): array
{
    global $db;
    $statement = $db->prepare($sql);
    $statement->execute($values);
    $rows = $statement->columnCount() > 0 ? $statement->fetchAll(PDO::FETCH_NUM) : [];
    $statement->closeCursor();
    return $rows;
}

function insert(string $order, int $cents): string
{
    $refund = 'php-' . bin2hex(random_bytes(6));
    rows('INSERT INTO polyglot_refunds (id, order_no, cents) VALUES (?, ?, ?)', $refund, $order, $cents);
    return $refund;
}

function refund(string $order, int $cents): array
{
    global $claim, $finish;
    $request = json_encode(['cents' => $cents, 'order' => $order], JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE);
    [[$outcome, $mine, $state, $result]] = rows($claim, $order, hash('sha256', $request));
    if ($outcome === 'replayed' && $state !== 'succeeded') { // it was cancelled, or refused
        return [$state, '-'];
    }
    if ($outcome !== 'claimed') {
        return [$outcome, $outcome === 'replayed' ? json_decode($result) : '-'];
    }
    $refund = insert($order, $cents);
    rows($finish, $mine, json_encode($refund));
    return ['executed', $refund];
}

function naive(string $order, int $cents): array // the control: it looks first
{
    $found = rows('SELECT id FROM polyglot_refunds WHERE order_no = ?', $order);
    return $found ? ['replayed', $found[0][0]] : ['executed', insert($order, $cents)];
}

while (($line = fgets(STDIN)) !== false) {
    [$order, $cents] = explode(' ', trim($line));
    try {
        $db->beginTransaction();
        [$outcome, $made] = $e['PROTECT'] === 'none' ? naive($order, (int) $cents) : refund($order, (int) $cents);
        $db->commit();
    } catch (PDOException $error) { // nothing was committed, or it is not known: ask again
        fwrite(STDERR, 'php: ' . $error->getMessage() . "\n");
        $db->inTransaction() && $db->rollBack();
        [$outcome, $made] = ['again', '-'];
    }
    echo "$order $outcome $made\n";
}
