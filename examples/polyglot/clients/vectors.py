"""Computes the test vectors of docs/reference/protocol/vectors.json, and prints each: section, number, value."""
import hashlib, json, re, sys


def key_hash(*parts):
    return hashlib.sha256(b"holdfast record 1" + b"".join(len(p).to_bytes(8, "big") + p for p in parts)).hexdigest()


def key_of(parts):
    return "/".join(p.replace("%", "%25").replace("/", "%2F") for p in parts)


def number(text):
    sign, whole, part, exponent = re.fullmatch(r"(-?)([0-9]+)(?:[.]([0-9]+))?(?:[eE]([-+]?[0-9]+))?", text).groups("")
    digits = (whole + part).lstrip("0")
    if not digits:
        return "0"
    point = len(digits) - len(part) + int(exponent or 0)  # the decimal point's place
    if float(text) == float("inf") or float(text) == -float("inf") or point <= -9999:
        raise ValueError("beyond a double, or below 1e-9999")
    digits = digits.rstrip("0")
    if 0 < point <= 21:
        text = digits.ljust(point, "0") if len(digits) <= point else digits[:point] + "." + digits[point:]
    elif -6 < point <= 0:
        text = "0." + "0" * -point + digits
    else:
        text = digits[0] + ("." + digits[1:] if len(digits) > 1 else "") + "e%+d" % (point - 1)
    return sign + text


def string(text):
    text.encode()  # refuses half a pair of surrogates
    short = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
    return '"' + "".join(short.get(c) or (c if c >= " " else "\\u%04x" % ord(c)) for c in text) + '"'


def write(value):
    if isinstance(value, Number):
        return number(value)
    if isinstance(value, str):
        return string(value)
    if isinstance(value, list):
        return "[" + ",".join(map(write, value)) + "]"
    if isinstance(value, dict):
        members = sorted(value.items(), key=lambda m: m[0].encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(string(k) + ":" + write(v) for k, v in members) + "}"
    return {None: "null", True: "true", False: "false"}[value]


class Number(str):
    pass


def refuse(word):
    raise ValueError(word)


def canonical(data):
    text = data.decode()
    if re.search(r"(?<!\\)(\\\\)*\\ufffd", text, re.I):
        raise ValueError("U+FFFD as an escape")
    return write(json.loads(text, parse_int=Number, parse_float=Number, parse_constant=refuse)).encode()


def given(v, name):
    return bytes.fromhex(v[name + "_hex"]) if name + "_hex" in v else v[name].encode()


def refused(data):
    try:
        return canonical(data).hex()
    except ValueError:
        return "refused"


COMPUTE = {
    "key_hash": lambda v: key_hash(v["namespace"].encode(), v["owner"].encode(), v["operation"].encode(), given(v, "key")),
    "key_of": lambda v: key_of(v["parts"]).encode().hex(),
    "canonical": lambda v: canonical(given(v, "json")).hex(),
    "canonical_refused": lambda v: refused(given(v, "json")),
    "fingerprint": lambda v: hashlib.sha256(given(v, "bytes") if "bytes_hex" in v else canonical(given(v, "json"))).hexdigest(),
    "lock_name": lambda v: (v["kind"][0].encode() + given(v, "key")).hex(),
}
vectors = json.load(open(sys.argv[1], encoding="utf-8"))
for section, compute in COMPUTE.items():
    for i, v in enumerate(vectors[section]):
        print(section, i, compute(v))
