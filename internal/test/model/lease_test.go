//go:build !race

package model_test

var (
	anyClock = "-DROUNDS=1"
	forced   = "-DROUNDS=1 -DFORCES=1"
	margin   = "-DTIMED=1 -DROUNDS=1 -DGUARDS=0"
	noReaper = "-DTIMED=1 -DROUNDS=2 -DGUARDS=0 -DREAPER=0"
	sessions = noReaper + " -DSESSIONS=1"
	trigger  = "-DROUNDS=1 -DGUARDS=2"
	resumes  = noReaper + " -DRESUMES=1"
)

var lease = model{
	file:  "lease.pml",
	short: 1,
	small: []run{
		{"AnyClock", "-DROUNDS=2"},
		{"AnyClockForced", "-DROUNDS=1 -DFORCES=1"},
		{"AnyClockTrigger", "-DROUNDS=1 -DGUARDS=2 -DFORCES=1"},
		{"Margin", "-DTIMED=1 -DROUNDS=1 -DGUARDS=0"},
		{"MarginTwice", "-DTIMED=1 -DROUNDS=2 -DGUARDS=0 -DREAPER=0"},
		{"MarginForced", "-DTIMED=1 -DROUNDS=1 -DGUARDS=0 -DREAPER=0 -DFORCES=1"},
		{"AnyClockSessions", "-DROUNDS=1 -DSESSIONS=1"},
		{"MarginSessions", "-DTIMED=1 -DROUNDS=1 -DGUARDS=0 -DREAPER=0 -DSESSIONS=1"},
		{"AnyClockResumes", "-DROUNDS=1 -DRESUMES=1"},
		{"MarginResumes", "-DTIMED=1 -DROUNDS=2 -DGUARDS=0 -DREAPER=0 -DHANDOVERS=0 -DLOSERS=0 -DRESUMES=1"},
		{"MarginResumesLost", "-DTIMED=1 -DROUNDS=1 -DGUARDS=0 -DREAPER=0 -DHANDOVERS=0 -DRESUMES=1"},
	},
	large: []run{
		{"AnyClockTwiceForced", "-DROUNDS=2 -DFORCES=1"},
		{"AnyClockThree", "-DROUNDS=1 -DCLIENTS=3"},
		{"AnyClockAllLose", "-DROUNDS=1 -DLOSERS=2 -DFORCES=1"},
		{"MarginGuards", "-DTIMED=1 -DROUNDS=1"},
		{"MarginReaperForced", "-DTIMED=1 -DROUNDS=1 -DGUARDS=0 -DTTL=2 -DFORCES=1"},
		{"MarginTwiceResumes", "-DTIMED=1 -DROUNDS=2 -DGUARDS=0 -DREAPER=0 -DHANDOVERS=0 -DRESUMES=1"},
		// This is correct while the clock behaves and no client forces a release: it was tried
		// as an optimisation.
		{"MarginTokenBlocks", "-DTIMED=1 -DROUNDS=2 -DGUARDS=0 -DREAPER=0 -DTOKEN_BLOCKS"},
	},
	planted: []bug{
		{"GUARD_LAST", "G2", anyClock},
		{"GUARD_UNLOCKED", "G2", anyClock},
		{"GUARD_BY_ATTEMPT", "G2", anyClock},
		{"TRIGGER_UNLOCKED", "FENCE", trigger},
		{"TRIGGER_ROWLESS", "FENCE", trigger},
		{"TRIGGER_SHARES_KEY", "FENCE", trigger + " -DFORCES=1"},
		{"FORCE_BY_EXPIRY", "G2", forced},
		{"DELETE_ON_RELEASE", "G3", anyClock},
		{"HANDOVER_KEEPS_TOKEN", "G3", anyClock},
		{"TOKEN_BLOCKS", "G3", "-DROUNDS=2"},
		{"FLOOR_UNLOCKED", "G3", anyClock},
		{"REAP_ANY_TOKEN", "G3", anyClock},
		{"REAP_FLOOR_LAST", "DONE", anyClock},
		{"FREE_BY_EXPIRY", "FREE", anyClock},
		{"TAKE_UNTESTED", "G1", noReaper},
		{"RELEASE_BY_NAME", "G1", noReaper},
		{"RELEASE_BEFORE_END", "G1", noReaper},
		{"HANDOVER_BY_NAME", "G1", noReaper},
		{"RELEASE_TRUSTS_DOUBT", "KEPT", anyClock},
		{"RELEASE_BY_ATTEMPT", "KEPT", anyClock},
		{"HANDOVER_BY_ATTEMPT", "KEPT", anyClock},
		{"REAP_WITHOUT_RETEST", "G1", margin + " -DHANDOVERS=0 -DRENEWERS=0 -DTTL=2"},
		{"TRUST_FROM_REPLY", "G1", noReaper},
		{"NO_MARGIN", "G1", noReaper},
		{"RESEND_SHORTENS", "G1", noReaper},
		{"RENEW_RESURRECTS", "OVER", noReaper},
		{"RENEW_INSERTS", "OVER", margin + " -DLOSERS=0"},
		{"DEAD_BY_NAME", "G1", sessions},
		{"SILENT_IS_DEAD", "G1", sessions},
		{"GUARD_BY_TOKEN", "G2", anyClock + " -DRESUMES=1"},
		{"RESUME_KEEPS_ATTEMPT", "KEPT", anyClock + " -DRESUMES=1"},
		{"RESUME_BY_TOKEN", "G1", resumes},
		{"RESUME_BY_ATTEMPT", "G3", "-DROUNDS=2 -DRESUMES=1"},
		{"RESUME_REVIVES", "OVER", resumes},
		{"RELEASE_TRUSTS_ROW", "KEPT", "-DROUNDS=2 -DRESUMES=1"},
	},
}
