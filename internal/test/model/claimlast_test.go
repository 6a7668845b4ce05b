//go:build !race

package model_test

var claimLast = model{
	file: "claimlast.pml",
	small: []run{
		{"Two", "-DFIRSTS=0"},
		{"BesideClaimFirst", "-DLASTS=2 -DFIRSTS=1"},
	},
	large: []run{
		{"Three", "-DLASTS=3 -DFIRSTS=1 -DTRIES=2"},
	},
	planted: []bug{
		{"NO_FENCE", "WHOLE", "-DFAILS=0"},
		{"OWN_EXEMPT", "WHOLE", "-DFAILS=0"},
		{"NO_REFUSAL", "WHOLE", ""},
		{"ERROR_UNREAD", "TOLD", ""},
		{"LOOK_PLAIN", "OPEN", ""},
		{"FINISH_BLIND", "ONCE", "-DLOSES=0"},
		{"LOCK_FIRST", "WHOLE", ""},
	},
}
