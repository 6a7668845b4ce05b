package servers

import (
	"context"
	"net"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// startRedis starts the nodes; with appendonly=yes each write waits for the disk.
func (s *Set) startRedis(ctx context.Context, binary, name, appendonly string) (version string, err error) {
	for i := range Nodes {
		host, port, err := address(ctx)
		if err != nil {
			return "", err
		}
		p, err := s.run("redis-"+appendonly+"-"+strconv.Itoa(i), binary,
			"--bind", host, "--port", port, "--save", "", "--appendonly", appendonly, "--appendfsync", "always",
			"--dir", ".", "--daemonize", "no")
		if err != nil {
			return "", err
		}
		address := net.JoinHostPort(host, port)
		c := redis.NewClient(&redis.Options{Addr: address})
		info, err := p.ready(ctx, func(ctx context.Context) (string, error) { return c.Info(ctx, "server").Result() })
		_ = c.Close()
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(info) {
			if v, ok := strings.CutPrefix(line, "redis_version:"); ok {
				version = strings.TrimSpace(v)
			}
		}
		s.Addresses[name] = append(s.Addresses[name], address)
	}
	return version, nil
}
