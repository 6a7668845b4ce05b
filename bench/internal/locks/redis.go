package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
)

// redisClients returns clients of the first nodes of the group's Redis.
func redisClients(w *World, group string, nodes int) ([]*goredislib.Client, func(context.Context) error) {
	var clients []*goredislib.Client
	for _, a := range w.Servers.Addresses[group][:nodes] {
		clients = append(clients, goredislib.NewClient(&goredislib.Options{Addr: a, PoolSize: 72, Dialer: w.Servers.Wire.Dial}))
	}
	return clients, func(context.Context) error {
		var errs []error
		for _, c := range clients {
			errs = append(errs, c.Close())
		}
		return errors.Join(errs...)
	}
}

// redisFree deletes a lock if its holder still has it.
var redisFree = goredislib.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`)

// redisBare is SET NX, and a script that deletes the key.
func redisBare(group string, poll Poll) func(context.Context, *World) (*Lock, error) {
	return func(_ context.Context, w *World) (*Lock, error) {
		clients, closes := redisClients(w, group, 1)
		c := clients[0]
		l := polled(poll, func(ctx context.Context, key, id []byte) (bool, error) {
			return c.SetNX(ctx, string(key), id, TTL).Result()
		}, func(ctx context.Context, key, id []byte) error {
			n, err := redisFree.Run(ctx, c, []string{string(key)}, id).Int64()
			return one(n, err)
		})
		l.Close = closes
		return l, nil
	}
}

// redSync is github.com/go-redsync/redsync on the given number of nodes.
func redSync(group string, nodes int) func(context.Context, *World) (*Lock, error) {
	return func(_ context.Context, w *World) (*Lock, error) {
		clients, closes := redisClients(w, group, nodes)
		var pools []redis.Pool
		for _, c := range clients {
			pools = append(pools, goredis.NewPool(c))
		}
		rs := redsync.New(pools...)
		return &Lock{
			Acquire: func(ctx context.Context, _ int, key string) (Release, error) {
				m := rs.NewMutex(key, redsync.WithExpiry(TTL), redsync.WithTries(1<<20)) // with its own delays
				if err := m.LockContext(ctx); err != nil {
					return nil, err
				}
				return func(ctx context.Context) error {
					ok, err := m.UnlockContext(ctx)
					if err == nil && !ok {
						err = errors.New("the lock was not there")
					}
					return err
				}, nil
			},
			Close: closes,
		}, nil
	}
}

// redisLock is github.com/bsm/redislock, with the retries of its README.
func redisLock(group string) func(context.Context, *World) (*Lock, error) {
	return func(_ context.Context, w *World) (*Lock, error) {
		clients, closes := redisClients(w, group, 1)
		locker := redislock.New(clients[0])
		return &Lock{
			Acquire: func(ctx context.Context, _ int, key string) (Release, error) {
				// Its wait ends after the TTL unless the context has a deadline.
				ctx, cancel := context.WithTimeout(ctx, time.Hour)
				defer cancel()
				l, err := locker.Obtain(ctx, key, TTL, &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
				if err != nil {
					return nil, fmt.Errorf("redislock: %w", err)
				}
				return l.Release, nil
			},
			Close: closes,
		}, nil
	}
}
