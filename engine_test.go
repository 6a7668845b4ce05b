package holdfast

import (
	"errors"
	"strings"
	"testing"
)

// TestEngineOf checks real server banners. An unknown banner is never guessed.
func TestEngineOf(t *testing.T) {
	t.Parallel()
	for banner, want := range map[string]Engine{
		"PostgreSQL 18.6 (Debian 18.6-3) on x86_64-pc-linux-gnu, compiled by gcc, 64-bit": PostgreSQL,
		"PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64-pc-linux-gnu":                PostgreSQL,
		"9.7.4-2":                        MySQL,
		"8.0.43":                         MySQL,
		"8.4.6-google":                   MySQL,
		"10.11.19-MariaDB-0+deb12u1":     MariaDB,
		"5.5.5-10.11.6-MariaDB-log":      MariaDB,
		"11.8.2-MariaDB-ubu2404":         MariaDB,
		"8.0.11-TiDB-v8.5.1":             TiDB,
		"8.4.6-Vitess":                   Vitess,
		"CockroachDB CCL v25.1.0 (x86)":  "",
		"PostgreSQL 15.2-YB-2.25.1.0-b0": "",
		"PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC, Redshift 1.0.12103": "",
		"Oracle Database 23ai": "",
		"":                     "",
	} {
		got, err := engineOf(banner)
		if got != want || (want == "") != errors.Is(err, ErrUnsupported) {
			t.Errorf("%q: got %q, %v", banner, got, err)
		}
	}
}

func TestCheckPrefixAndIdent(t *testing.T) {
	t.Parallel()
	for prefix, ok := range map[string]bool{
		"": true, "holdfast_": true, "a1_": true, strings.Repeat("p", 32): true,
		strings.Repeat("p", 33): false, "1a": false, "a b": false, "a;": false, "a\"": false, "a`": false, "é": false, "a\x00": false,
	} {
		if err := checkPrefix(prefix); (err == nil) != ok {
			t.Errorf("prefix %q: %v", prefix, err)
		}
	}
	for name, ok := range map[string]bool{
		"refunds": true, `we"ird; DROP`: true, "für": true, "": false, "a\x00": false, "\xff": false, strings.Repeat("n", 64): false,
	} {
		if err := checkIdent("name", name, 63, false); (err == nil) != ok {
			t.Errorf("name %q: %v", name, err)
		}
	}
}
