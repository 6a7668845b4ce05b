package servers

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const zooKeeperJar = "/usr/share/java/zookeeper.jar"

// startZooKeeper starts one server, which waits for its disk: forceSync is on by default.
func (s *Set) startZooKeeper(ctx context.Context, jar string) (string, error) {
	host, port, err := address(ctx)
	if err != nil {
		return "", err
	}
	config := filepath.Join(s.dir, "zookeeper.cfg")
	text := fmt.Sprintf("tickTime=2000\ndataDir=%s\nclientPort=%s\nclientPortAddress=%s\nmaxClientCnxns=0\n"+
		"admin.enableServer=false\n4lw.commands.whitelist=srvr\n", filepath.Join(s.dir, "zookeeper", "data"), port, host)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return "", err
	}
	p, err := s.run("zookeeper", "java", "-Xmx512m", "-cp", jar, "org.apache.zookeeper.server.ZooKeeperServerMain", config)
	if err != nil {
		return "", err
	}
	server := net.JoinHostPort(host, port)
	version, err := p.ready(ctx, func(ctx context.Context) (string, error) { return zooKeeperVersion(ctx, server) })
	if err == nil {
		s.Addresses[ZooKeeper] = []string{server}
	}
	return version, err
}

// zooKeeperVersion reads the version with a four-letter command.
func zooKeeperVersion(ctx context.Context, server string) (string, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", server)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.Write([]byte("srvr")); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(c)
	if err != nil {
		return "", err
	}
	version, _, ok := strings.Cut(strings.TrimPrefix(string(answer), "Zookeeper version: "), "-")
	if !ok {
		return "", fmt.Errorf("it said %.40q", answer)
	}
	return version, nil
}
