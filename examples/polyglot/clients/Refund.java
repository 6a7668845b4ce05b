import java.io.*;
import java.security.*;
import java.sql.*;
import java.util.*;

/** Refunds an order once. Reads lines "order cents", answers "order outcome refund". */
class Refund {
    static final Map<String, String> E = System.getenv();
    static final boolean POSTGRES = E.get("DB_ENGINE").equals("postgres");
    static final String CLAIM = POSTGRES ? "SELECT * FROM holdfast_claim('polyglot', 'shop-7', 'refund', ?::text, ?)"
        : "CALL holdfast_claim('polyglot', 'shop-7', 'refund', ?, ?, 0, 10000000)";
    static final String FINISH = POSTGRES ? "SELECT holdfast_finish(?, 'succeeded', ?::text)"
        : "CALL holdfast_finish(?, 'succeeded', ?, 'json', NULL, NULL, NULL)";
    static Connection db;

    static PreparedStatement with(PreparedStatement s, Object... values) throws SQLException {
        for (int i = 0; i < values.length; i++) s.setObject(i + 1, values[i]);
        return s;
    }

    static String insert(String order, int cents) throws SQLException {
        String refund = "java-" + UUID.randomUUID().toString().substring(24);
        try (var s = db.prepareStatement("INSERT INTO polyglot_refunds (id, order_no, cents) VALUES (?, ?, ?)")) {
            with(s, refund, order, cents).executeUpdate();
        }
        return refund;
    }

    static String refund(String order, int cents) throws Exception {
        String request = "{\"cents\":" + cents + ",\"order\":\"" + order + "\"}"; // an order has no character to escape
        byte[] hash = MessageDigest.getInstance("SHA-256").digest(request.getBytes("UTF-8"));
        String claim;
        try (var s = db.prepareStatement(CLAIM); var row = with(s, order, HexFormat.of().formatHex(hash)).executeQuery()) {
            row.next();
            if (row.getString(1).equals("replayed") && !row.getString(3).equals("succeeded")) return row.getString(3) + " -"; // cancelled, or refused
            if (row.getString(1).equals("replayed")) return "replayed " + row.getString(4).replace("\"", "");
            if (!row.getString(1).equals("claimed")) return row.getString(1) + " -";
            claim = row.getString(2);
        }
        String refund = insert(order, cents);
        try (var s = db.prepareStatement(FINISH)) {
            with(s, claim, "\"" + refund + "\"").execute();
        }
        return "executed " + refund;
    }

    static String naive(String order, int cents) throws SQLException { // the control: it looks first
        try (var s = db.prepareStatement("SELECT id FROM polyglot_refunds WHERE order_no = ?"); var row = with(s, order).executeQuery()) {
            return row.next() ? "replayed " + row.getString(1) : "executed " + insert(order, cents);
        }
    }

    public static void main(String[] args) throws Exception {
        String at = "://" + E.get("DB_HOST") + ":" + E.get("DB_PORT") + "/" + E.get("DB_NAME");
        db = DriverManager.getConnection(POSTGRES ? "jdbc:postgresql" + at + "?currentSchema=" + E.get("DB_SCHEMA") : "jdbc:mariadb" + at,
            E.get("DB_USER"), E.get("DB_PASSWORD"));
        db.setAutoCommit(false);
        var in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] word = line.split(" ");
            String answer = "again -";
            try {
                answer = E.get("PROTECT").equals("none") ? naive(word[0], Integer.parseInt(word[1])) : refund(word[0], Integer.parseInt(word[1]));
                db.commit();
            } catch (SQLException error) { // nothing was committed, or it is not known: ask again
                System.err.println("java: " + error.getMessage());
                db.rollback();
                answer = "again -";
            }
            System.out.println(word[0] + " " + answer);
        }
    }
}
