//go:build unix

// Package tlstest shows how each driver is connected with TLS.
package tlstest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"database/sql"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastpgx"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// openPostgres opens a pool that checks the server's certificate and shows its own. The address is one such
// as postgres://app@db.example:5432/shop.
func openPostgres(ctx context.Context, address, caFile, certFile, keyFile string) (*pgxpool.Pool, error) {
	settings := url.Values{"sslmode": {"verify-full"}, "sslrootcert": {caFile}, "sslcert": {certFile}, "sslkey": {keyFile}}
	return pgxpool.New(ctx, address+"?"+settings.Encode())
}

// openMySQL does the same on MySQL and MariaDB, with Holdfast's connector around the driver's.
func openMySQL(dsn, caFile, certFile, keyFile string) (*sql.DB, error) {
	config, err := mysql.ParseDSN(dsn) // such as "app@tcp(db.example:3306)/shop"
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return nil, err
	}
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s has no certificate", caFile)
	}
	config.TLS = &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(holdfastsql.Connector(connector)), nil
}

// authority issues certificates into a folder that the server's account owns.
type authority struct {
	t    *testing.T
	dir  string
	uid  int
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, accounts ...string) *authority {
	t.Helper()
	as := dbtest.Account(t, accounts...)
	a := &authority{t: t, dir: dbtest.OwnFolder(t, as), uid: os.Getuid()}
	if as != nil {
		a.uid = int(as.Uid)
	}
	a.issue("ca")
	return a
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// issue makes name.pem and name.key, for the account that has this name.
func (a *authority) issue(name string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: a.cert == nil, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	if a.cert == nil {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			a.t.Fatal(err)
		}
		a.key = key
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{name + ".pem": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "PRIVATE KEY", Bytes: secret}} {
		a.write(file, string(pem.EncodeToMemory(block)))
	}
}

func (a *authority) write(file, text string) {
	a.t.Helper()
	if err := os.WriteFile(a.file(file), []byte(text), 0o600); err != nil {
		a.t.Fatal(err)
	}
	if err := os.Chown(a.file(file), a.uid, -1); err != nil {
		a.t.Fatal(err)
	}
}

// TestTLSPostgres checks the page's way to a server that asks for a client certificate.
func TestTLSPostgres(t *testing.T) {
	t.Parallel()
	a := newAuthority(t, "postgres")
	a.issue("server")
	a.issue("holdfast")
	a.write("hba", "hostssl all all 127.0.0.1/32 cert\n")
	server := dbtest.OwnPostgres(t, "-c fsync=off -c ssl=on -c ssl_cert_file="+a.file("server.pem")+" -c ssl_key_file="+a.file("server.key")+" -c ssl_ca_file="+a.file("ca.pem")+" -c hba_file="+a.file("hba"))
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.RawQuery = ""
	pool, err := openPostgres(t.Context(), u.String(), a.file("ca.pem"), a.file("holdfast.pem"), a.file("holdfast.key"))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := holdfastpgx.Open(t.Context(), pool, holdfast.Options{SingleOwner: true}); err != nil {
		t.Error(err)
	}
	var encrypted bool
	if err := pool.QueryRow(t.Context(), `SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()`).Scan(&encrypted); err != nil || !encrypted {
		t.Errorf("encrypted: %v, %v", encrypted, err)
	}
	other := newAuthority(t, "postgres")
	other.issue("holdfast")
	for what, with := range map[string][2]*authority{"the server": {other, a}, "the client": {a, other}} {
		wrong, err := openPostgres(t.Context(), u.String(), with[0].file("ca.pem"), with[1].file("holdfast.pem"), with[1].file("holdfast.key"))
		if err != nil {
			t.Fatal(err)
		}
		if wrong.Ping(t.Context()) == nil {
			t.Errorf("%s has a certificate of another authority, and the connection is made", what)
		}
		wrong.Close()
	}
}

// TestTLSMariaDB checks the page's way to MySQL and MariaDB.
func TestTLSMariaDB(t *testing.T) {
	t.Parallel()
	a := newAuthority(t, "mysql", "nobody")
	a.issue("server")
	a.issue("app")
	_, address, _ := strings.Cut(dbtest.OwnMariaDB(t, "--ssl-ca="+a.file("ca.pem"), "--ssl-cert="+a.file("server.pem"), "--ssl-key="+a.file("server.key"), "--require-secure-transport=ON"), "://")
	pool, err := openMySQL(address, a.file("ca.pem"), a.file("app.pem"), a.file("app.key"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pool.Close() }()
	if _, err := holdfastsql.Open(t.Context(), pool, holdfast.Options{SingleOwner: true}); err != nil {
		t.Error(err)
	}
	var name, cipher string
	if err := pool.QueryRowContext(t.Context(), `SHOW SESSION STATUS LIKE 'Ssl_cipher'`).Scan(&name, &cipher); err != nil || cipher == "" {
		t.Errorf("the cipher is %q, %v", cipher, err)
	}
	other := newAuthority(t, "mysql", "nobody")
	wrong, err := openMySQL(address, other.file("ca.pem"), a.file("app.pem"), a.file("app.key"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = wrong.Close() }()
	if wrong.PingContext(t.Context()) == nil {
		t.Error("the server has a certificate of another authority, and the connection is made")
	}
}
