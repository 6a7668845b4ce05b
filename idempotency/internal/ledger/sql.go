package ledger

import (
	"strings"

	"github.com/holdfast-go/holdfast/internal/core"
	"github.com/holdfast-go/holdfast/internal/dialect"
)

// SQL holds the statements of the staged operations; dialect.Staged documents them.
type SQL struct {
	// Those that may end a transaction.
	Own, Finish, StepInsert, StepBegin, StepEnd                 core.Bound
	Look, Latest, Insert, Claim, Renew, Accept                  core.Stmt
	Release, Park, ParkDue, Due, StepLook, StepFind, Steps      core.Stmt
	StepAccept, StepReverse, Reverse, ReferenceFind             core.Stmt
	StepType, StepCorrect, StepNames, StepRefer                 core.Stmt
	Touch, Unpark, Known, Closing, Contradict, Contradicted     core.Stmt
	EventRead, EventInsert, EventList, Intervene, Interventions core.Stmt
	Intervened                                                  core.Stmt
	Erase, EraseSteps, EraseEvents, EraseKey, EraseReferences   core.Stmt
	Forget, ForgetSteps, ForgetEvents                           core.Stmt
}

// Tables returns a replacer that puts the table names and the clock into a statement's text.
func Tables(table func(string) string, now string) *strings.Replacer {
	var pairs []string
	for _, t := range dialect.Tables {
		pairs = append(pairs, "{"+t+"}", table(t))
	}
	return strings.NewReplacer(append(pairs, "{now}", now)...)
}

func compile(dialect *dialect.Dialect, table func(string) string) SQL {
	d, r := &dialect.Staged, Tables(table, dialect.Now)
	x := func(name, text string) core.Stmt { return dialect.Compile("staged."+name, r.Replace(text)) }
	last := func(name, text string) core.Bound { return dialect.Last("staged."+name, r.Replace(text)) }
	return SQL{
		Own: last("own", d.Own), Finish: last("finish", d.Finish), StepInsert: last("step.insert", d.StepInsert),
		StepBegin: last("step.begin", d.StepBegin), StepEnd: last("step.end", d.StepEnd),
		Look: x("look", d.Look), Latest: x("latest", d.Latest), Insert: x("insert", d.Insert), Claim: x("claim", d.Claim),
		Renew: x("renew", d.Renew), Accept: x("accept", d.Accept), Release: x("release", d.Release), Park: x("park", d.Park),
		ParkDue: x("park due", d.ParkDue), Due: x("due", d.Due),
		StepLook: x("step.look", d.StepLook), StepFind: x("step.find", d.StepFind), Steps: x("steps", d.Steps),
		StepAccept: x("step.accept", d.StepAccept), StepReverse: x("step.reverse", d.StepReverse), Reverse: x("reverse", d.Reverse),
		ReferenceFind: x("reference.find", d.ReferenceFind),
		StepType:      x("step.type", d.StepType), StepCorrect: x("step.correct", d.StepCorrect), StepNames: x("step.names", d.StepNames),
		StepRefer: x("step.refer", d.StepRefer), Contradict: x("contradict", d.Contradict), Contradicted: x("contradicted", d.Contradicted),
		Touch: x("touch", d.Touch), Unpark: x("unpark", d.Unpark), Known: x("known", d.Known), Closing: x("close", d.Close),
		EventRead: x("event.read", d.EventRead), EventInsert: x("event.insert", d.EventInsert), EventList: x("event.list", d.EventList),
		Intervene: x("intervene", d.Intervene), Interventions: x("interventions", d.Interventions), Intervened: x("intervened", d.Intervened),
		Erase: x("erase", d.Erase), EraseSteps: x("erase.steps", d.EraseSteps), EraseEvents: x("erase.events", d.EraseEvents),
		EraseKey: x("erase.key", d.EraseKey), EraseReferences: x("erase.references", d.EraseReferences),
		Forget: x("forget", d.Forget), ForgetSteps: x("forget.steps", d.ForgetSteps), ForgetEvents: x("forget.events", d.ForgetEvents),
	}
}
