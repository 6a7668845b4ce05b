//go:build !race

package model_test

// voids is a call of Do, one of Void and one of DoTx.
const voids = "-DDOS=1 -DCALLS=1 -DVOIDS=1"

var lockFirst = model{
	file: "lockfirst.pml",
	small: []run{
		{"TwoOfDo", "-DTXS=0"},
		{"BesideDoTx", "-DDOS=2 -DTXS=1"},
		{"Parts", "-DPARTS=1 -DTXS=0"},
		{"SQLite", "-DSQLITE=1 -DDOS=2 -DTXS=1"},
		{"Voided", "-DDOS=1 -DVOIDS=1 -DTXS=1"},
		{"VoidedSQLite", "-DSQLITE=1 -DDOS=1 -DVOIDS=2 -DTXS=1"},
	},
	large: []run{
		{"VoidedTwice", "-DDOS=2 -DVOIDS=1 -DTXS=1"},
		{"ThreeOfDo", "-DDOS=3 -DTXS=1 -DTRIES=3"},
	},
	planted: []bug{
		{"DO_UNLOCKED", "ALONE", "-DFAILS=0"},
		{"TX_UNLOCKED", "ALONE", ""},
		{"UNLOCK_EARLY", "ALONE", "-DFAILS=0"},
		{"WAIT_TRUSTED", "FRESH", ""},
		{"ERROR_UNREAD", "TOLD", ""},
		{"ERROR_LATE", "OWN", ""},
		{"ERROR_LEFT", "PART", "-DPARTS=1 -DTXS=0"},
		{"FINISH_BLIND", "ONCE", ""},
		{"LOCK_KEPT", "DONE", ""},
		{"LOOK_FIRST", "FRESH", "-DSQLITE=1"},
		{"VOID_OVER", "VOID", voids},
		{"VOID_UNWRITTEN", "VOID", voids},
	},
}
