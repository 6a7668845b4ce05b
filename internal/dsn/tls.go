package dsn

import (
	"net"
	"strings"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
)

// Unchecked returns the setting with which a driver encrypts without checking the server's certificate, and the
// one with which it checks it; "" if it checks it, does not encrypt, or the URL is wrong.
func Unchecked(rawURL string) (setting, better string) {
	config, err := Parse(rawURL)
	if err != nil {
		return "", ""
	}
	switch config.Driver {
	case "pgx":
		c, err := pgx.ParseConfig(config.DSN)
		if err != nil {
			return "", ""
		}
		// The driver itself checks the chain for verify-ca.
		if c.TLSConfig != nil && c.TLSConfig.InsecureSkipVerify && c.TLSConfig.VerifyPeerCertificate == nil {
			return "sslmode=prefer or require", "sslmode=verify-full and sslrootcert"
		}
	case "mysql":
		c, err := mysqldriver.ParseDSN(config.DSN)
		if err == nil && (c.TLSConfig == "skip-verify" || c.TLSConfig == "preferred") {
			return "tls=" + c.TLSConfig, "tls=true"
		}
	}
	return "", ""
}

// Local reports whether a URL names a server on this machine, or a file.
func Local(rawURL string) bool {
	address := Address(rawURL)
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	ip := net.ParseIP(host)
	return host == "" || host == "localhost" || strings.HasPrefix(host, "/") || ip != nil && ip.IsLoopback()
}
