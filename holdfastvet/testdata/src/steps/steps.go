package steps

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"time"

	"helpers"

	"github.com/google/uuid"
	"github.com/holdfast-go/holdfast/idempotency/staged"
)

type request struct {
	Order string
	Lines []string
	Parts map[string]int
}

// The results of steps are kept.
func book(ctx context.Context, tx *sql.Tx) (string, error) { return uuid.NewString(), nil } // want book:"new at each call"

func pay(ctx context.Context, key string) (string, error) { return time.Now().String(), nil } // want pay:"new at each call"

const step = "book"

func run(ctx context.Context, r *staged.Run[*sql.Tx], req request) (string, error) {
	began := time.Now()    // want `time\.Now gives the next attempt another value`
	if rand.IntN(2) == 0 { // want `rand\.IntN gives the next attempt another value`
		return "", nil
	}
	no, err := staged.Local(ctx, r, step, book)
	if err != nil {
		return "", err
	}
	_, _ = staged.Local(ctx, r, "close", book)                                             // want `the error of staged\.Local is dropped`
	_, err = staged.Local(ctx, r, "book/"+no, book)                                        // want `the step's name is no constant`
	_, err = staged.Call(ctx, r, staged.ExternalCall[string]{Step: helpers.Name(no)}, pay) // want `the step's name is new in each attempt \(helpers\.Name, by helpers\.id, by uuid\.NewString\)`
	_, err = staged.Call(ctx, r, staged.ExternalCall[string]{Step: "pay"}, func(ctx context.Context, key string) (string, error) {
		return uuid.NewString(), nil
	})
	for i, line := range req.Lines {
		_, err = staged.Local(ctx, r, fmt.Sprint("line/", i, line), book)
	}
	for i := 0; i < 3; i++ {
		_, err = staged.Local(ctx, r, fmt.Sprint("part/", i), book)
	}
	for part := range req.Parts { // want `steps in the order of a map`
		_, err = staged.Local(ctx, r, "part/"+part, book)
	}
	sum := 0
	for _, n := range req.Parts {
		sum += n
	}
	go func() { // want `steps in a goroutine`
		_, err = staged.Local(ctx, r, "later", book)
	}()
	go func() { fmt.Println("running", sum) }()
	_ = began
	return helped(ctx, r, helpers.Name(no)) // want `helpers\.Name, by helpers\.id, by uuid\.NewString gives the next attempt another value`
}

func helped(ctx context.Context, r *staged.Run[*sql.Tx], by string) (string, error) {
	one := func() string { return uuid.NewString() } // want `uuid\.NewString gives the next attempt another value`
	return staged.Local(ctx, r, "helped", func(ctx context.Context, tx *sql.Tx) (string, error) { return one(), nil })
}

func noSteps() time.Time { return time.Now() } // want noSteps:`new at each call: time\.Now`
