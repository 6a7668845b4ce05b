// Package console is a page for operators, as an http.Handler to mount: leases
// with holder and remaining time, lines of fair locks and semaphores, operations
// by state with search, those whose outcome is unknown, and what the reaper did.
//
//	page, err := console.New(ctx, db, console.Options{Token: os.Getenv("CONSOLE_TOKEN")})
//	mux.Handle("/console/", http.StripPrefix("/console", page))
//
// It needs no other files, loads nothing from elsewhere, works below any path,
// without JavaScript and by the keyboard alone. The program holdfast serves it
// too: holdfast console.
//
// # Who may see it, and who may act
//
// A token is asked for, once in twelve hours. [Options.BehindOwnAuthentication]
// leaves that to the program. Nothing can be changed unless [Options.Write] is
// set. Then an unknown operation can be resolved, and a lock taken away, with a
// reason; a page in between says what that does, and who did it is recorded.
//
// # What it shows
//
// Keys, tenants, names, holders, states, steps, reasons and interventions. It
// never shows a request, a result, the body of news or the value of a lease.
package console
