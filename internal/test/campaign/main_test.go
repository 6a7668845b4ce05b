//go:build unix

package campaign

import (
	"flag"
	"io"
	"log"
	"os"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

var (
	duration = flag.Duration("duration", 0, "how long each engine's campaign lasts, 10s at least; 0 is not at all")
	seed     = flag.Uint64("seed", 0, "what the schedule and the clients' operations are drawn from; 0 is the clock")
	controls = flag.String("controls", "", "which controls run: none, each (on one engine), all (on every engine); default: each, or all in a campaign of 10 minutes and more")
)

func TestMain(m *testing.M) {
	_ = mysqldriver.SetLogger(log.New(io.Discard, "", 0)) // the driver logs every connection that breaks
	if text := os.Getenv(clientVariable); text != "" {
		clientMain(text)
		return
	}
	flag.Parse()
	parallel := false
	flag.Visit(func(f *flag.Flag) { parallel = parallel || f.Name == "test.parallel" })
	if !parallel {
		_ = flag.Set("test.parallel", "4") // the engines run in parallel, and no more of the controls
	}
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano()) % 1e9
	}
	dbtest.VerifyNoLeaks(m)
}
