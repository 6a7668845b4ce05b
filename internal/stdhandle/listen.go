package stdhandle

import (
	"context"
	"database/sql"
	"errors"
	"reflect"

	"github.com/holdfast-go/holdfast/internal/core"
)

// Spares implements core.Sparing.
func (h Handle[Tx]) Spares(n int) bool {
	pool, ok := h.R.(*sql.DB)
	if !ok {
		return false
	}
	most := pool.Stats().MaxOpenConnections
	return most == 0 || most >= n*core.PerSpared
}

// Connections implements core.Limited.
func (h Handle[Tx]) Connections() (used, most int) {
	pool, ok := h.R.(*sql.DB)
	if !ok {
		return 0, 0
	}
	s := pool.Stats()
	return s.InUse, s.MaxOpenConnections
}

// Listen implements core.Listener for pgx through database/sql, on a connection of the pool.
// It calls the driver by reflection, so that this package links no driver.
func (h Handle[Tx]) Listen(ctx context.Context, statement string, ready func(), each func(payload string)) error {
	if !h.Spares(1) {
		return core.ErrNoListener
	}
	pinned, err := h.Acquire(ctx)
	if err != nil {
		return err
	}
	defer pinned.Release(true) // the session still listens
	if _, err := pinned.Exec(ctx, statement); err != nil {
		return err
	}
	return pinned.Raw(func(driverConn any) error {
		wait, err := notifications(driverConn)
		if err != nil {
			return err
		}
		ready()
		for {
			payload, err := wait(ctx)
			if err != nil {
				return err
			}
			each(payload)
		}
	})
}

// notifications returns, for the driver's connection c, the equivalent of
//
//	n, err := c.Conn().WaitForNotification(ctx); return n.Payload, err
func notifications(c any) (wait func(ctx context.Context) (string, error), err error) {
	native := reflect.ValueOf(c).MethodByName("Conn")
	if !native.IsValid() || native.Type().NumIn() != 0 || native.Type().NumOut() != 1 {
		return nil, core.ErrNoListener
	}
	method := native.Call(nil)[0].MethodByName("WaitForNotification")
	if !method.IsValid() || method.Type().NumIn() != 1 || method.Type().NumOut() != 2 || method.Type().In(0) != reflect.TypeFor[context.Context]() {
		return nil, core.ErrNoListener
	}
	return func(ctx context.Context) (string, error) {
		out := method.Call([]reflect.Value{reflect.ValueOf(ctx)})
		if err, failed := reflect.TypeAssert[error](out[1]); failed && err != nil {
			return "", err
		}
		payload := reflect.Indirect(out[0]).FieldByName("Payload")
		if payload.Kind() != reflect.String {
			return "", errors.New("holdfast: the driver's notification has no payload")
		}
		return payload.String(), nil
	}, nil
}
