package locks

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/bench/internal/servers"
)

func etcdClient(w *World) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: w.Servers.Addresses[servers.Etcd], DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
	})
}

// etcdBare is a put and a delete, the two commits, without mutual exclusion.
func etcdBare(_ context.Context, w *World) (*Lock, error) {
	c, err := etcdClient(w)
	if err != nil {
		return nil, err
	}
	return &Lock{
		Acquire: func(ctx context.Context, _ int, key string) (Release, error) {
			if _, err := c.Put(ctx, key, ""); err != nil {
				return nil, err
			}
			return func(ctx context.Context) error { _, err := c.Delete(ctx, key); return err }, nil
		},
		Close: func(context.Context) error { return c.Close() },
	}, nil
}

// etcdMutex is etcd's own mutex. Each client has a session, because two clients of one session
// do not exclude each other.
func etcdMutex(_ context.Context, w *World) (*Lock, error) {
	c, err := etcdClient(w)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	sessions := map[int]*concurrency.Session{}
	session := func(client int) (*concurrency.Session, error) {
		mu.Lock()
		defer mu.Unlock()
		if s := sessions[client]; s != nil {
			return s, nil
		}
		s, err := concurrency.NewSession(c, concurrency.WithTTL(int(TTL.Seconds())))
		if err == nil {
			sessions[client] = s
		}
		return s, err
	}
	return &Lock{
		Acquire: func(ctx context.Context, client int, key string) (Release, error) {
			s, err := session(client)
			if err != nil {
				return nil, err
			}
			m := concurrency.NewMutex(s, "/locks/"+key)
			if err := m.Lock(ctx); err != nil {
				return nil, err
			}
			return m.Unlock, nil
		},
		Close: func(context.Context) error {
			var errs []error
			for _, s := range sessions {
				errs = append(errs, s.Close())
			}
			return errors.Join(append(errs, c.Close())...)
		},
	}, nil
}

func zkConn(ctx context.Context, w *World) (*zk.Conn, error) {
	c, events, err := zk.Connect(w.Servers.Addresses[servers.ZooKeeper], TTL,
		zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	for {
		select {
		case e := <-events:
			if e.State == zk.StateHasSession {
				return c, nil
			}
		case <-ctx.Done():
			c.Close()
			return nil, context.Cause(ctx)
		}
	}
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// node returns the key as the name of one node.
func node(key string) string { return "/" + strings.ReplaceAll(key, "/", "-") }

// zkBare creates and deletes an ephemeral node. A second create of the same node fails.
func zkBare(ctx context.Context, w *World) (*Lock, error) {
	c, err := zkConn(ctx, w)
	if err != nil {
		return nil, err
	}
	return &Lock{
		Acquire: func(_ context.Context, _ int, key string) (Release, error) {
			path := node(key)
			if _, err := c.Create(path, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
				return nil, err
			}
			return func(context.Context) error { return c.Delete(path, -1) }, nil
		},
		Close: func(context.Context) error { c.Close(); return nil },
	}, nil
}

// zkLock is the recipe of github.com/go-zookeeper/zk.
func zkLock(ctx context.Context, w *World) (*Lock, error) {
	c, err := zkConn(ctx, w)
	if err != nil {
		return nil, err
	}
	return &Lock{
		Acquire: func(_ context.Context, _ int, key string) (Release, error) {
			l := zk.NewLock(c, "/locks"+node(key), zk.WorldACL(zk.PermAll))
			if err := l.Lock(); err != nil {
				return nil, err
			}
			return func(context.Context) error { return l.Unlock() }, nil
		},
		Close: func(context.Context) error { c.Close(); return nil },
	}, nil
}
