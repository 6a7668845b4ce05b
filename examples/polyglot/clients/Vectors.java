import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.*;
import java.nio.file.*;
import java.security.MessageDigest;
import java.util.*;

/** Computes the test vectors of docs/reference/protocol/vectors.json, and prints each: section, number, value. */
class Vectors {
    static String sha256(byte[] bytes) throws Exception {
        return hex(MessageDigest.getInstance("SHA-256").digest(bytes));
    }

    static String hex(byte[] bytes) { return HexFormat.of().formatHex(bytes); }

    static byte[] utf8(String text) { return text.getBytes(StandardCharsets.UTF_8); }

    static String keyHash(byte[]... parts) throws Exception {
        ByteBuffer all = ByteBuffer.allocate(4096).put(utf8("holdfast record 1"));
        for (byte[] p : parts) all.putLong(p.length).put(p);
        return sha256(Arrays.copyOf(all.array(), all.position()));
    }

    static String keyOf(List<Object> parts) {
        return String.join("/", parts.stream().map(p -> ((String) p).replace("%", "%25").replace("/", "%2F")).toList());
    }

    static String number(String text) {
        var m = java.util.regex.Pattern.compile("(-?)([0-9]+)(?:[.]([0-9]+))?(?:[eE]([-+]?[0-9]+))?").matcher(text);
        if (!m.matches()) throw new IllegalArgumentException("no number");
        String sign = m.group(1), part = m.group(3) == null ? "" : m.group(3), exponent = m.group(4) == null ? "0" : m.group(4);
        String digits = (m.group(2) + part).replaceFirst("^0+", "");
        if (digits.isEmpty()) return "0";
        BigInteger place = new BigInteger(exponent).add(BigInteger.valueOf(digits.length() - part.length())); // of the decimal point
        if (Double.isInfinite(Double.parseDouble(text)) || place.compareTo(BigInteger.valueOf(-9999)) <= 0) {
            throw new IllegalArgumentException("beyond a double, or below 1e-9999");
        }
        int point = place.intValueExact();
        digits = digits.replaceFirst("0+$", "");
        if (point > 0 && point <= 21) {
            return sign + (digits.length() <= point ? digits + "0".repeat(point - digits.length()) : digits.substring(0, point) + "." + digits.substring(point));
        }
        if (point > -6 && point <= 0) return sign + "0." + "0".repeat(-point) + digits;
        return sign + digits.charAt(0) + (digits.length() > 1 ? "." + digits.substring(1) : "") + String.format("e%+d", point - 1);
    }

    static String string(String text) {
        StringBuilder b = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            int i = "\"\\\b\t\n\f\r".indexOf(c);
            b.append(i >= 0 ? "\\" + "\"\\btnfr".charAt(i) : c < ' ' ? String.format("\\u%04x", (int) c) : String.valueOf(c));
        }
        return b.append('"').toString();
    }

    record Number(String text) {}

    /** A reader of JSON that keeps numbers as they are written. */
    static class Reader {
        final String in;
        int at = 0;

        Reader(byte[] json) throws CharacterCodingException {
            in = StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(json)).toString(); // refuses what is not UTF-8
        }

        char peek() {
            while (at < in.length() && " \t\n\r".indexOf(in.charAt(at)) >= 0) at++;
            return at < in.length() ? in.charAt(at) : 0;
        }

        void take(char c) {
            if (peek() != c) throw new IllegalArgumentException("no " + c);
            at++;
        }

        Object all() {
            Object v = value();
            if (peek() != 0 || at < in.length()) throw new IllegalArgumentException("more than a value");
            return v;
        }

        Object value() {
            char c = peek();
            if (c == '"') return text();
            if (c == '[' || c == '{') {
                Map<String, Object> members = new TreeMap<>(); // in the order of UTF-16 code units
                List<Object> items = new ArrayList<>();
                char close = c == '[' ? ']' : '}';
                for (at++; peek() != close; ) {
                    if (items.size() + members.size() > 0) take(',');
                    peek();
                    if (c == '[') items.add(value());
                    else {
                        String name = text();
                        take(':');
                        members.put(name, value());
                    }
                }
                at++;
                return c == '[' ? items : members;
            }
            var m = java.util.regex.Pattern.compile("true|false|null|-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][-+]?[0-9]+)?").matcher(in).region(at, in.length());
            if (!m.lookingAt()) throw new IllegalArgumentException("no JSON");
            at = m.end();
            return new Number(m.group());
        }

        String text() {
            StringBuilder b = new StringBuilder();
            for (take('"'); in.charAt(at) != '"'; at++) {
                char c = in.charAt(at);
                if (c < ' ') throw new IllegalArgumentException("a control character");
                if (c == '\\') {
                    int i = "\"\\/bfnrtu".indexOf(in.charAt(++at));
                    if (i < 0) throw new IllegalArgumentException("no escape");
                    c = "\"\\/\b\f\n\r\t".concat("u").charAt(i);
                    if (i == 8) {
                        c = (char) Integer.parseInt(in.substring(at + 1, at + 5), 16);
                        at += 4;
                        if (c == '\ufffd') throw new IllegalArgumentException("U+FFFD as an escape");
                    }
                }
                b.append(c);
            }
            at++;
            if (!StandardCharsets.UTF_8.newEncoder().canEncode(b)) throw new IllegalArgumentException("half a pair of surrogates");
            return b.toString();
        }
    }

    @SuppressWarnings("unchecked")
    static String write(Object v) {
        if (v instanceof String s) return string(s);
        if (v instanceof Number n) return Character.isLetter(n.text.charAt(0)) ? n.text : number(n.text);
        if (v instanceof List<?> l) return "[" + String.join(",", l.stream().map(Vectors::write).toList()) + "]";
        return "{" + String.join(",", ((Map<String, Object>) v).entrySet().stream().map(m -> string(m.getKey()) + ":" + write(m.getValue())).toList()) + "}";
    }

    static byte[] canonical(byte[] json) throws Exception { return utf8(write(new Reader(json).all())); }

    static byte[] given(Map<String, Object> v, String name) {
        Object hex = v.get(name + "_hex");
        return hex != null ? HexFormat.of().parseHex((String) hex) : utf8((String) v.get(name));
    }

    static String compute(String section, Map<String, Object> v) throws Exception {
        switch (section) {
            case "key_hash": return keyHash(given(v, "namespace"), given(v, "owner"), given(v, "operation"), given(v, "key"));
            case "key_of": return hex(utf8(keyOf((List<Object>) v.get("parts"))));
            case "canonical": return hex(canonical(given(v, "json")));
            case "fingerprint": return sha256(v.containsKey("bytes_hex") ? given(v, "bytes") : canonical(given(v, "json")));
            case "lock_name": return hex(utf8(((String) v.get("kind")).substring(0, 1))) + hex(given(v, "key"));
        }
        try {
            return hex(canonical(given(v, "json")));
        } catch (IllegalArgumentException | CharacterCodingException refused) {
            return "refused";
        }
    }

    public static void main(String[] args) throws Exception {
        var vectors = (Map<String, List<Map<String, Object>>>) new Reader(Files.readAllBytes(Path.of(args[0]))).all();
        for (String section : "key_hash key_of canonical canonical_refused fingerprint lock_name".split(" ")) {
            for (int i = 0; i < vectors.get(section).size(); i++) System.out.println(section + " " + i + " " + compute(section, vectors.get(section).get(i)));
        }
    }
}
