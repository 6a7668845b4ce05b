//go:build !race

package model_test

var limits = model{
	file: "limits.pml",
	small: []run{
		{"TwoClients", "-DCLIENTS=2"},
		{"ThreeClients", "-DCALLS=1"},
	},
	large: []run{{"ThreeCalls", "-DCLIENTS=2 -DCALLS=3"}},
	planted: []bug{
		{"CHECK_THEN_UPDATE", "SUM", "-DCALLS=1 -DDEATHS=0"},
		{"EXPIRED_TWICE", "COUNT", "-DCALLS=2 -DDEATHS=0"},
		{"CAPTURE_EXPIRED", "LATE", "-DCLIENTS=1 -DDEATHS=0"},
		{"CAPTURE_UNTESTED", "COUNT", "-DCLIENTS=2 -DDEATHS=0"},
		{"REPLAY_COUNTED", "ONCE", "-DCLIENTS=1 -DDEATHS=0"},
		{"EXPIRY_SKIPPED", "FULL", "-DCLIENTS=1 -DCALLS=3 -DDEATHS=0"},
		{"ENTRY_FIRST", "CYCLE", "-DCLIENTS=2 -DDEATHS=0"},
	},
}
