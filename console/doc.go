// Package console is a web page for operators, as an http.Handler to mount. It shows leases with
// holder and remaining time, queues of fair locks and semaphores, operations by state with search,
// operations whose outcome is unknown, and the results of the reaper.
//
//	page, err := console.New(ctx, db, console.Options{Token: os.Getenv("CONSOLE_TOKEN")})
//	mux.Handle("/console/", http.StripPrefix("/console", page))
//
// It needs no other files, loads nothing from other hosts, and works below any path, without
// JavaScript and with the keyboard alone. The program holdfast also serves it: holdfast console.
//
// # Access and changes
//
// The console asks for a token once in twelve hours. With [Options.BehindOwnAuthentication], the
// program authenticates instead. Changes are possible only if [Options.Write] is set. Then an
// operator can resolve an unknown operation, or take a lock away, with a reason. A confirmation
// page says what the change does, and the console records the operator's name. With
// [Options.FourEyes] it only proposes the change, and another person confirms it.
//
// # What it shows
//
// Keys, owners (the tenant, merchant or account whose operation it is), names, holders, states,
// steps, reasons and interventions. It never shows a request, a stored result, the body of a
// provider event or the value of a lease. A proposed result is shown to those who
// confirm it.
package console
