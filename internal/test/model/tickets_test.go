//go:build !race

package model_test

var (
	lines    = "-DCLIENTS=3"
	guarded  = "-DCLIENTS=3 -DGUARDS=1"
	anchors  = "-DCLIENTS=2 -DROUNDS=2 -DREAPER=1"
	patient  = "-DCLIENTS=3 -DPATIENT=1 -DDEATHS=2" // a client that does not die gets its turn
	trusted  = "-DCLIENTS=3 -DTIMED=1"
	renewing = "-DCLIENTS=2 -DTIMED=1 -DRENEWERS=1"
	permits  = " -DWRITERS=0"
)

var tickets = model{
	file:  "tickets.pml",
	short: 0,
	small: []run{
		{"Shared", guarded},
		{"SharedLostForced", lines + " -DLOSERS=1 -DFORCES=1"},
		{"Semaphore", guarded + permits},
		{"Patient", patient},
		{"PatientLost", patient + " -DLOSERS=1"},
		{"Reaped", "-DCLIENTS=2 -DREAPER=1 -DLOSERS=1"},
		{"Margin", trusted},
		{"MarginRenewed", renewing + " -DLOSERS=1"},
		{"SharedSessions", guarded + " -DSESSIONS=1"},
		{"MarginSessions", trusted + " -DSESSIONS=1"},
	},
	large: []run{
		{"MarginSemaphore", trusted + permits},
		{"MarginReaped", renewing + " -DREAPER=1"},
		{"SharedAll", guarded + " -DLOSERS=1 -DFORCES=1"},
		{"ReapedTwice", anchors},
		{"Three", "-DCLIENTS=3 -DREAPER=1"},
		{"MarginForced", trusted + " -DFORCES=1"},
		{"MarginTwice", "-DCLIENTS=2 -DTIMED=1 -DROUNDS=2 -DLOSERS=1"},
		{"MarginThreeRenewed", trusted + " -DRENEWERS=1"},
	},
	planted: []bug{
		{"DRAW_UNLOCKED", "TABLE", lines},
		{"ENTER_OLD_SNAPSHOT", "TABLE", lines},
		{"ENTER_COUNTS_GRANTED", "FAIR", lines},
		{"ENTER_COUNTS_LIVE", "TABLE", lines},
		{"LOOK_COUNTS_LIVE", "TABLE", lines},
		{"LOOK_COUNTS_GRANTED", "FAIR", lines},
		{"CONFIRM_ANY", "TABLE", lines},
		{"CLEAR_LOCKED", "GUARD", guarded},
		{"GUARD_UNLOCKED", "GUARD", guarded},
		{"GUARD_WAITING", "GUARD", "-DCLIENTS=2 -DGUARDS=2"},
		{"ANCHOR_UNFLOORED", "TOKEN", anchors},
		{"ANCHOR_FLOOR_UNLOCKED", "TOKEN", anchors},
		{"ANCHOR_REAP_ANY", "TOKEN", anchors},
		{"CONFIRM_EXPIRED", "OVER", trusted},
		{"CLEAR_NEVER", "DONE", patient},
		{"GRANT_KEEPS_OWN", "TABLE", lines},
		{"GRANT_COUNTS_LIVE", "TABLE", lines},
		{"GRANT_COUNTS_GRANTED", "FAIR", lines},
		{"GRANT_EXPIRED", "OVER", trusted},
		{"GRANT_DEAD_STAYS", "DONE", patient},
		{"NEWS_IS_TRUSTED", "ROOM", trusted},
		{"LEAVE_BY_NAME", "ROOM", trusted},
		{"LEAVE_BEFORE_END", "ROOM", trusted},
		{"LEAVE_TRUSTS_DOUBT", "KEPT", "-DCLIENTS=2 -DLOSERS=1"},
		{"TRUST_FROM_REPLY", "ROOM", trusted},
		{"NO_MARGIN", "ROOM", trusted},
		{"RENEW_RESURRECTS", "OVER", renewing},
		{"SILENT_IS_DEAD", "ROOM", trusted + " -DSESSIONS=1"},
	},
}
