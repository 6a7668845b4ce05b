package faults_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/adapters/holdfastsql"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/idempotency/staged"
	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dsn"
	"github.com/holdfast-go/holdfast/internal/test/conformance"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
	"github.com/holdfast-go/holdfast/migrations"
)

// childVoids is the environment variable that turns the test's binary into a client of a storm of originals and
// voids. It contains the JSON of a voidsJob.
const childVoids = "HOLDFAST_FAULTS_CHILD_VOIDS"

// voidsJob tells a client what it asks for, in which order, and where it goes on.
type voidsJob struct {
	DSN, Bank    string
	Staged, Void bool
	Functions    bool // the void is that of clients in other languages
	Keys         []int
	From         int
}

// What a client was told of a key.
const (
	toldDone   = "done"
	toldVoided = "voided"
	toldLate   = "too late"
)

// Rule: of an original and its void, sent at the same time by processes that are killed anywhere, one wins: never
// both, and never neither. What a client was told stays true.
func TestVoidStorm(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, engine dbtest.Engine) {
		for name, isStaged := range map[string]bool{"Do": false, "Staged": true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				voidStorm(t, conformance.New(t, conformance.SQL(), engine), isStaged)
			})
		}
		// Naive: a void that finds nothing does nothing. Its original comes later.
		e := conformance.New(t, conformance.SQL(), engine)
		s := e.Store(idempotency.Options{})
		found, err := idempotency.Lookup[string](e.Ctx, s, conformance.Op("naive"))
		e.Check(err)
		_, err = e.Do(s, conformance.Op("naive"))
		e.Check(err)
		if found.State == idempotency.StateAbsent && e.Effects("naive") == 0 {
			t.Fatal("the naive form should have failed")
		}
	})
}

func voidStorm(t *testing.T, e *conformance.Env[*sql.Tx], isStaged bool) {
	t.Helper()
	keys, kills := 16, 2
	if dbtest.Nightly() {
		keys, kills = 300, 40
	}
	functions := !isStaged && slices.Contains([]dbtest.Engine{dbtest.Postgres, dbtest.MySQL, dbtest.MariaDB}, e.Engine)
	if functions {
		e.Check(migrations.FunctionsUp(e.Ctx, e.SQL))
	}
	b := newBank(t)
	told := make([]map[string]int, keys)
	for i := range told {
		told[i] = map[string]int{}
	}
	deaths := 0
	var mu sync.Mutex
	var clients sync.WaitGroup
	for n := range 4 {
		random := rand.New(rand.NewPCG(7, uint64(n))) // the same in each run
		j := voidsJob{DSN: e.DSN, Bank: b.URL, Staged: isStaged, Void: n%2 == 1, Functions: functions && n == 3, Keys: make([]int, keys)}
		for i := range j.Keys {
			j.Keys[i] = i
			if j.Void { // they meet in the middle
				j.Keys[i] = keys - 1 - i
			}
		}
		random.Shuffle(4, func(a, b int) { j.Keys[a], j.Keys[b] = j.Keys[b], j.Keys[a] })
		clients.Go(func() {
			for killed := 0; j.From < keys; killed++ {
				after := -1 // the lines after which it is killed
				if killed < kills {
					after = 1 + random.IntN(max((keys-j.From)/2, 1)) // a key has a line, or more
				}
				answers, dead, err := voidsRun(t.Context(), j, after)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if dead {
					deaths++
				}
				for _, a := range answers {
					told[j.Keys[j.From]][a]++
					j.From++
				}
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	voided := 0
	for i, told := range told {
		key := fmt.Sprint("key ", i)
		made, undone, paid := e.Effects(key), e.Effects(key+" undone"), 0
		if isStaged {
			r, err := voidsRunner(e.Store(idempotency.Options{}), e.DB.Engine(), b.URL, func() {})
			e.Check(err)
			paid = b.payments(r.ProviderKey(staged.Ref{Key: key}, "pay"))
			if made-undone != paid {
				t.Errorf("%s: booked %d, undone %d, paid %d", key, made, undone, paid)
			}
			made = paid
		}
		// Both originals got an answer, and so did both voids.
		switch {
		case made == 1 && told[toldDone] == 2 && told[toldLate] == 2:
		case made == 0 && told[toldDone] == 0 && told[toldLate] == 0 && told[toldVoided] == 4:
			voided++
		default:
			t.Errorf("%s: %d effects, and its callers were told %v", key, made, told)
		}
	}
	t.Logf("%d of %d were voided, %d processes killed", voided, keys, deaths)
}

// voidsRun runs a client, which is killed after so many lines; -1 is never. It returns the client's answers,
// and whether it was killed.
func voidsRun(ctx context.Context, j voidsJob, after int) (answers []string, dead bool, err error) {
	text, err := json.Marshal(j)
	if err != nil {
		return nil, false, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*dbtest.Hang)
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), childVoids+"="+string(text))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, false, err
	}
	if err := cmd.Start(); err != nil {
		return nil, false, err
	}
	lines := 0
	for scan := bufio.NewScanner(out); scan.Scan(); {
		switch line := scan.Text(); line {
		case toldDone, toldVoided, toldLate:
			answers = append(answers, line)
		case "runs": // its function
		default:
			err = errors.Join(err, errors.New(line))
		}
		if lines++; lines == after {
			_ = cmd.Process.Kill()
		}
	}
	ended, dead := cmd.Wait(), after > 0 && lines >= after
	if !dead {
		err = errors.Join(err, ended)
	}
	return answers, dead, err
}

// voidsChild runs the client's process.
func voidsChild(text string) {
	if err := voidsChildRun(text); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func voidsChildRun(text string) error {
	var j voidsJob
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	ctx := context.Background()
	pool, _, err := dsn.Open(j.DSN)
	if err != nil {
		return err
	}
	db, err := holdfastsql.Open(ctx, pool, holdfast.Options{SingleOwner: true})
	if err != nil {
		return err
	}
	store, err := idempotency.New(ctx, db)
	if err != nil {
		return err
	}
	runs := func() { fmt.Println("runs") }
	r, err := voidsRunner(store, db.Engine(), j.Bank, runs)
	if err != nil {
		return err
	}
	ask := func(op idempotency.Op) (err error) {
		switch {
		case j.Staged && j.Void:
			_, err = r.Cancel(ctx, idempotency.Op{Key: op.Key}, "a storm")
		case j.Staged:
			_, err = r.Do(ctx, idempotency.Op{Key: op.Key}, op.Key)
		case j.Functions:
			err = voidsByFunction(ctx, pool, db.Engine(), op)
		case j.Void:
			_, err = store.Void(ctx, op, "a storm")
		default:
			_, err = idempotency.Do(ctx, store, op, func(ctx context.Context, tx *sql.Tx) (string, error) {
				runs()
				return "done", voidsEffect(ctx, tx, db.Engine(), op.Key)
			})
		}
		return err
	}
	for _, i := range j.Keys[j.From:] {
		told := ""
		for told == "" {
			err := ask(conformance.Op(fmt.Sprint("key ", i)))
			var rej *idempotency.Rejection
			switch {
			case err == nil && j.Void, errors.As(err, &rej) && rej.Code == idempotency.CodeVoided:
				told = toldVoided
			case err == nil:
				told = toldDone
			case errors.Is(err, idempotency.ErrTooLate):
				told = toldLate
			case errors.Is(err, holdfast.ErrInvalid), errors.Is(err, holdfast.ErrSchema):
				return err
			}
		}
		fmt.Println(told)
	}
	return nil
}

// voidsByFunction voids as a client in another language does.
func voidsByFunction(ctx context.Context, pool *sql.DB, engine holdfast.Engine, op idempotency.Op) error {
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	text := `SELECT * FROM holdfast_void('default', $1, $2, $3::text, 'a storm')`
	if engine != holdfast.PostgreSQL {
		text = `CALL holdfast_void('default', ?, ?, ?, 'a storm', NULL, 60000000)`
	}
	var outcome string
	var state, result, data, codec, id, detail sql.NullString
	if err := tx.QueryRowContext(ctx, text, op.Owner, op.Name, op.Key).Scan(&outcome, &state, &result, &data, &codec, &id, &detail); err != nil {
		return err
	}
	switch outcome {
	case "voided":
		return tx.Commit()
	case "too_late":
		return idempotency.ErrTooLate
	default:
		return fmt.Errorf("the outcome of holdfast_void is %q", outcome)
	}
}

func voidsEffect(ctx context.Context, tx *sql.Tx, engine holdfast.Engine, key string) error {
	query := core.Compile("", `INSERT INTO effects (k, who) VALUES ($1, $2)`, engine != holdfast.PostgreSQL).Text
	_, err := tx.ExecContext(ctx, query, []byte(key), "client")
	return err
}

// voidsRunner is a refund that books and pays, at a provider that honours keys.
func voidsRunner(store *idempotency.Store[*sql.Tx], engine holdfast.Engine, provider string, runs func()) (*staged.Runner[string, string, *sql.Tx], error) {
	return staged.New(store, staged.Workflow[string, string, *sql.Tx]{
		Name: "refund", Lease: 300 * time.Millisecond, Backoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond, MaxAttempts: 1000,
		Run: func(ctx context.Context, r *staged.Run[*sql.Tx], key string) (string, error) {
			if _, err := staged.Local(ctx, r, "book", func(ctx context.Context, tx *sql.Tx) (bool, error) {
				runs()
				return true, voidsEffect(ctx, tx, engine, key)
			}); err != nil {
				return "", err
			}
			return staged.Call(ctx, r, staged.ExternalCall[string]{Step: "pay", OnLeaseEnd: staged.TakeOver}, func(ctx context.Context, key string) (string, error) {
				runs()
				return atBank(ctx, http.MethodPost, provider, key)
			})
		},
		Undo: func(ctx context.Context, tx *sql.Tx, request string, op staged.Operation) error {
			for _, step := range op.Steps {
				if step.Name == "book" {
					return voidsEffect(ctx, tx, engine, request+" undone")
				}
			}
			return nil
		},
	})
}
