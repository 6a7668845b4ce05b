//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"
)

const (
	// containerLife is the time after which Docker ends a container whose starter did not.
	containerLife = 2 * time.Hour
	pullTimeout   = 5 * time.Minute
	sharedMemory  = 256 << 20 // PostgreSQL needs more than Docker's 64 MiB for parallel queries
)

// image is the configuration of an engine in Docker.
type image struct {
	repository, tag string
	port            docker.Port
	command         []string
	user, database  string
	passwordEnv     string
	env             []string
	data            string // the directory
}

// rollbackOnTimeout makes a lock wait that times out (1205) roll back the whole transaction and
// not only its statement.
const rollbackOnTimeout = "--innodb-rollback-on-timeout=ON"

var images = map[engine]image{
	postgres: {
		repository: "postgres", tag: "18", port: "5432/tcp",
		command: []string{"postgres", "-c", "max_connections=1000", "-c", "max_prepared_transactions=100"},
		user:    "postgres", database: "postgres", passwordEnv: "POSTGRES_PASSWORD",
		// Tests connect very often, and most of that cost would be SCRAM's default of 4096
		// rounds. lib/pq, with which bench compares, reads no number of less than four digits.
		env:  []string{"POSTGRES_INITDB_ARGS=-c scram_iterations=1000"},
		data: "/var/lib/postgresql",
	},
	mysql: {
		repository: "mysql", tag: "9.7", port: "3306/tcp",
		command: []string{"mysqld", "--max-connections=1000"},
		user:    "root", database: "holdfast", passwordEnv: "MYSQL_ROOT_PASSWORD",
		env:  []string{"MYSQL_DATABASE=holdfast"},
		data: "/var/lib/mysql",
	},
	mariadb: {
		repository: "mariadb", tag: "10.11", port: "3306/tcp",
		// This is not the default: MySQL runs with the default, so both forms of error 1205 are
		// tested.
		command: []string{"mariadbd", "--max-connections=1000", rollbackOnTimeout},
		user:    "root", database: "holdfast", passwordEnv: "MARIADB_ROOT_PASSWORD",
		env:  []string{"MARIADB_DATABASE=holdfast"},
		data: "/var/lib/mysql",
	},
}

// dockerPool connects to the Docker engine, once for all engines.
var dockerPool = sync.OnceValues(func() (*dockertest.Pool, error) {
	pool, err := dockertest.NewPool("")
	if err != nil {
		return nil, errors.New("no Docker engine")
	}
	if err := pool.Client.Ping(); err != nil {
		return nil, errors.New("no Docker engine answers")
	}
	return pool, nil
})

// dockerSource runs an engine in a container that listens on the loopback interface only and is removed with
// its volumes when it stops. Its files are in memory, or on a disk.
func dockerSource(disk bool) source {
	return func(ctx context.Context, e engine) (*server, error) { return fromDocker(ctx, e, disk) }
}

func fromDocker(ctx context.Context, e engine, disk bool) (*server, error) {
	pool, err := dockerPool()
	if err != nil {
		return nil, err
	}
	img := images[e]
	if err := pull(ctx, pool, img); err != nil {
		return nil, err
	}
	password := newPassword()
	resource, err := pool.RunWithOptions(&dockertest.RunOptions{
		Repository: img.repository,
		Tag:        img.tag,
		Cmd:        img.command,
		Env:        append([]string{img.passwordEnv + "=" + password}, img.env...),
		PortBindings: map[docker.Port][]docker.PortBinding{
			img.port: {{HostIP: "127.0.0.1", HostPort: "0"}},
		},
		Labels: map[string]string{"holdfast": "testservers"},
	}, func(host *docker.HostConfig) {
		host.AutoRemove = true
		host.PublishAllPorts = false // it would publish the others on every interface
		host.ShmSize = sharedMemory
		// A container's files are gone with it, so no test may need them after a crash, and
		// commits need not wait for a disk.
		if !disk {
			host.Tmpfs = map[string]string{img.data: ""}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("Docker cannot run %s:%s: %w", img.repository, img.tag, err) //nolint:staticcheck // a name
	}
	stop := func() {
		if err := pool.Purge(resource); err != nil {
			logf("left behind: container %s: %v", resource.Container.ID, err)
		}
	}
	if err := resource.Expire(uint(containerLife.Seconds())); err != nil {
		logf("container %s will not expire: %v", resource.Container.ID, err)
	}
	dsn := e.dsn(img.user, password, resource.GetHostPort(string(img.port)), img.database)
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := waitReady(ctx, e, dsn, nil); err != nil {
		stop()
		return nil, fmt.Errorf("%s:%s in Docker: %w", img.repository, img.tag, err)
	}
	// Docker's proxy copies each byte between the published port and the container, which costs
	// about a tenth of the processor. Where the container can be reached without it, do so.
	if ip := resource.Container.NetworkSettings.IPAddress; ip != "" {
		direct := e.dsn(img.user, password, net.JoinHostPort(ip, img.port.Port()), img.database)
		if probe(ctx, e, direct) == nil {
			dsn = direct
		}
	}
	return &server{engine: e, dsn: dsn, how: "docker", stop: stop}, nil
}

// pull fetches the image if it is missing.
func pull(ctx context.Context, pool *dockertest.Pool, img image) error {
	name := img.repository + ":" + img.tag
	if _, err := pool.Client.InspectImage(name); err == nil {
		return nil
	}
	logf("pulling the image %s", name)
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	err := pool.Client.PullImage(docker.PullImageOptions{
		Context: ctx, Repository: img.repository, Tag: img.tag,
	}, docker.AuthConfiguration{})
	if err != nil {
		logf("%s: %v", name, err)
		return fmt.Errorf("no image %s to be had", name)
	}
	return nil
}
