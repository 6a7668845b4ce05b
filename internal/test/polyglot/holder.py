"""A holder of leases in Python, on psycopg2 or PyMySQL: see doc.go for its commands."""
import json, os, sys

config = json.loads(sys.argv[1])
POSTGRES = config["engine"] == "postgres"
if POSTGRES:
    import psycopg2 as driver
    connection = driver.connect(host=config["host"], port=int(config["port"]), user=config["user"], password=config["password"],
                                dbname=config["database"], options="-c search_path=" + config["schema"])
    NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    FLOOR = "(SELECT token FROM holdfast_floor WHERE id = 1 FOR SHARE) f ON CONFLICT DO NOTHING RETURNING token"
    TOKEN, RETURNING = "GREATEST(token + 1, " + NOW + ")", " RETURNING token"
else:
    import pymysql as driver
    connection = driver.connect(host=config["host"], port=int(config["port"]), user=config["user"], password=config["password"],
                                database=config["database"])
    NOW = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))"
    FLOOR = "holdfast_floor f WHERE f.id = 1 LOCK IN SHARE MODE"
    TOKEN, RETURNING = "LAST_INSERT_ID(GREATEST(token + 1, " + NOW + "))", ""
cursor = connection.cursor()


def acquire(key, ttl):
    """Inserts the row of the lock above the floor, or takes a row over that is free."""
    name, attempt = ("l" + key).encode(), os.urandom(16)
    token = "GREATEST(f.token + 1, " + NOW + ")"
    for sql, values in (
        ("INSERT INTO holdfast_locks (owner, name, token, attempt, holder, granted_at, expires_at) SELECT '', %s, "
         + (token if POSTGRES else "LAST_INSERT_ID(" + token + ")") + ", %s, 'python', " + NOW + ", " + NOW + " + %s FROM " + FLOOR,
         (name, attempt, int(ttl))),
        ("UPDATE holdfast_locks SET token = " + TOKEN + ", attempt = %s, holder = 'python', granted_at = " + NOW + ", expires_at = " + NOW
         + " + %s WHERE owner = '' AND name = %s AND (attempt IS NULL OR expires_at <= " + NOW + ")" + RETURNING, (attempt, int(ttl), name)),
    ):
        try:
            cursor.execute(sql, values)
            row = cursor.fetchone() if POSTGRES else (cursor.lastrowid,) if cursor.rowcount == 1 else None
            connection.commit()
        except driver.IntegrityError:
            connection.rollback()
            continue
        if row:
            return "token %d" % row[0]
    return "held"


def write(order, token, commit):
    try:
        cursor.execute("UPDATE orders SET state = 'python', fence = %s WHERE id = %s", (int(token), order))
        if commit:
            connection.commit()
        return "ok"
    except driver.Error as e:
        connection.rollback()
        return "refused " + (e.pgcode if POSTGRES else str(e.args[0]))


for line in sys.stdin:
    command, *args = line.split()
    if command == "acquire":
        answer = acquire(*args)
    elif command == "commit":
        connection.commit()
        answer = "ok"
    else:
        answer = write(*args, commit=command == "write")
    print(answer, flush=True)
