package servers

import (
	"context"
	"net"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// startEtcd starts one node, which waits for its disk, as etcd always does.
func (s *Set) startEtcd(ctx context.Context, binary string) (string, error) {
	host, port, err := address(ctx)
	if err != nil {
		return "", err
	}
	_, peers, err := address(ctx)
	if err != nil {
		return "", err
	}
	client, peer := "http://"+net.JoinHostPort(host, port), "http://"+net.JoinHostPort(host, peers)
	p, err := s.run("etcd", binary, "--name", "bench", "--data-dir", "data", "--log-level", "error", "--logger", "zap",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "bench="+peer)
	if err != nil {
		return "", err
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{client}, DialTimeout: time.Second, Logger: zap.NewNop()})
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	version, err := p.ready(ctx, func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		status, err := c.Status(ctx, client)
		if err != nil {
			return "", err
		}
		return status.Version, nil
	})
	if err == nil {
		s.Addresses[Etcd] = []string{client}
	}
	return version, err
}
