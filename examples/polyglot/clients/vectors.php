<?php // Computes the test vectors of docs/reference/protocol/vectors.json, and prints each: section, number, value.

function key_hash(string ...$parts): string
{
    return hash('sha256', 'holdfast record 1' . implode('', array_map(fn ($p) => pack('J', strlen($p)) . $p, $parts)));
}

function key_of(array $parts): string
{
    return implode('/', array_map(fn ($p) => str_replace(['%', '/'], ['%25', '%2F'], $p), $parts));
}

function number(string $text): string
{
    preg_match('/^(-?)([0-9]+)(?:\.([0-9]+))?(?:e([-+]?[0-9]+))?$/i', $text, $m, PREG_UNMATCHED_AS_NULL);
    [, $sign, $whole, $part, $exponent] = $m;
    $digits = ltrim($whole . $part, '0');
    if ($digits === '') {
        return '0';
    }
    $point = strlen($digits) - strlen($part ?? '') + (int) $exponent; // the decimal point's place
    if (is_infinite((float) $text) || $point <= -9999) {
        throw new Exception('beyond a double, or below 1e-9999');
    }
    $digits = rtrim($digits, '0');
    if ($point > 0 && $point <= 21) {
        $text = strlen($digits) <= $point ? str_pad($digits, $point, '0') : substr($digits, 0, $point) . '.' . substr($digits, $point);
    } elseif ($point > -6 && $point <= 0) {
        $text = '0.' . str_repeat('0', -$point) . $digits;
    } else {
        $text = $digits[0] . (strlen($digits) > 1 ? '.' . substr($digits, 1) : '') . sprintf('e%+d', $point - 1);
    }
    return $sign . $text;
}

function text_of(string $text): string
{
    $escaped = strtr($text, ['"' => '\"', '\\' => '\\\\', "\x08" => '\b', "\t" => '\t', "\n" => '\n', "\f" => '\f', "\r" => '\r']);
    return '"' . preg_replace_callback('/[\x00-\x1f]/', fn ($m) => sprintf('\u%04x', ord($m[0])), $escaped) . '"';
}

// Reads one value at the place $at, and returns its canonical form. json_decode would lose digits.
function value(string $json, int &$at, int $depth = 0): string
{
    preg_match('/\G[ \t\n\r]*(?:([\[{])|("(?:[^"\\\\\x00-\x1f]|\\\\.)*")|(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)|(true|false|null))[ \t\n\r]*/A', $json, $m, PREG_UNMATCHED_AS_NULL, $at)
        or throw new Exception('no JSON');
    $at += strlen($m[0]);
    if ($m[2] !== null) {
        preg_match('/(?<!\\\\)(?:\\\\\\\\)*\\\\ufffd/i', $m[2]) and throw new Exception('U+FFFD as an escape');
        return text_of(json_decode($m[2], false, 512, JSON_THROW_ON_ERROR));
    }
    if ($m[3] !== null || $m[4] !== null) {
        return $m[4] ?? number($m[3]);
    }
    [$close, $members] = [$m[1] === '{' ? '}' : ']', []];
    for ($more = ($json[$at] ?? '') !== $close; $more;) {
        $item = value($json, $at);
        if ($close === '}') {
            ($json[$at++] ?? '') === ':' && $item[0] === '"' or throw new Exception('no member');
            $name = json_decode($item);
            $members['=' . iconv('UTF-8', 'UTF-16BE', $name)] = $item . ':' . value($json, $at);
        } else {
            $members[] = $item;
        }
        if ($more = ($json[$at] ?? '') === ',') {
            $at++;
        }
    }
    ($json[$at++] ?? '') === $close or throw new Exception('not closed');
    if ($close === '}') {
        ksort($members, SORT_STRING);
    }
    $at += strspn($json, " \t\n\r", $at);
    return $m[1] . implode(',', $members) . $close;
}

function canonical(string $json): string
{
    preg_match('//u', $json) or throw new Exception('not UTF-8');
    $at = 0;
    $form = value($json, $at);
    $at === strlen($json) or throw new Exception('more than a value');
    return $form;
}

function given(array $v, string $name): string
{
    return isset($v[$name . '_hex']) ? hex2bin($v[$name . '_hex']) : $v[$name];
}

function refused(string $json): string
{
    try {
        return bin2hex(canonical($json));
    } catch (Exception) {
        return 'refused';
    }
}

$compute = [
    'key_hash' => fn ($v) => key_hash($v['namespace'], $v['owner'], $v['operation'], given($v, 'key')),
    'key_of' => fn ($v) => bin2hex(key_of($v['parts'])),
    'canonical' => fn ($v) => bin2hex(canonical(given($v, 'json'))),
    'canonical_refused' => fn ($v) => refused(given($v, 'json')),
    'fingerprint' => fn ($v) => hash('sha256', isset($v['bytes_hex']) ? given($v, 'bytes') : canonical(given($v, 'json'))),
    'lock_name' => fn ($v) => bin2hex($v['kind'][0] . given($v, 'key')),
];
$vectors = json_decode(file_get_contents($argv[1]), true, 512, JSON_THROW_ON_ERROR);
foreach ($compute as $section => $f) {
    foreach ($vectors[$section] as $i => $v) {
        echo "$section $i ", $f($v), "\n";
    }
}
