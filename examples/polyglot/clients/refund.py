"""Refunds an order once. Reads lines "order cents", answers "order outcome refund"."""
import hashlib, json, os, secrets, sys

e = os.environ
POSTGRES, PROTECT = e["DB_ENGINE"] == "postgres", e["PROTECT"] != "none"
if POSTGRES:
    import psycopg2 as driver
    db = driver.connect(host=e["DB_HOST"], port=e["DB_PORT"], user=e["DB_USER"], password=e["DB_PASSWORD"],
                        dbname=e["DB_NAME"], options="-c search_path=" + e["DB_SCHEMA"])
    CLAIM = "SELECT * FROM holdfast_claim('polyglot', 'shop-7', 'refund', %s::text, %s)"
    FINISH = "SELECT holdfast_finish(%s, 'succeeded', %s::text)"
else:
    import pymysql as driver
    db = driver.connect(host=e["DB_HOST"], port=int(e["DB_PORT"]), user=e["DB_USER"], password=e["DB_PASSWORD"],
                        database=e["DB_NAME"], charset="utf8mb4")
    CLAIM = "CALL holdfast_claim('polyglot', 'shop-7', 'refund', %s, %s, 0, 10000000)"
    FINISH = "CALL holdfast_finish(%s, 'succeeded', %s, 'json', NULL, NULL, NULL)"


def insert(c, order, cents):
    refund = "python-" + secrets.token_hex(6)
    c.execute("INSERT INTO polyglot_refunds (id, order_no, cents) VALUES (%s, %s, %s)", (refund, order, cents))
    return refund


def refund(c, order, cents):
    request = json.dumps({"order": order, "cents": cents}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    c.execute(CLAIM, (order, hashlib.sha256(request.encode()).hexdigest()))
    outcome, claim, state, result = c.fetchone()[:4]
    if outcome == "replayed" and state != "succeeded":  # it was cancelled, or refused
        return state, "-"
    if outcome != "claimed":
        return outcome, json.loads(result) if outcome == "replayed" else "-"
    refund = insert(c, order, cents)
    c.execute(FINISH, (claim, json.dumps(refund)))
    return "executed", refund


def naive(c, order, cents):  # the control: it looks first
    c.execute("SELECT id FROM polyglot_refunds WHERE order_no = %s", (order,))
    row = c.fetchone()
    return ("replayed", row[0]) if row else ("executed", insert(c, order, cents))


for line in sys.stdin:
    order, cents = line.split()
    try:
        with db.cursor() as c:
            outcome, made = (refund if PROTECT else naive)(c, order, int(cents))
        db.commit()
    except driver.Error as error:  # nothing was committed, or it is not known: ask again
        print("python:", error, file=sys.stderr)
        db.rollback()
        outcome, made = "again", "-"
    print(order, outcome, made, flush=True)
