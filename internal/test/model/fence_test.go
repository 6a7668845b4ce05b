//go:build !race

package model_test

var fence = model{
	file: "fence.pml",
	small: []run{
		{"Four", ""},
	},
	large: []run{
		{"Eight", "-DSTEPS=8"},
	},
	planted: []bug{
		{"TRUST_ERRORS", "WHOLE", ""},
		{"MARK_AFTER", "WHOLE", ""},
		{"MARK_NEVER", "ONCE", ""},
		{"MARK_LATE", "WHOLE", ""},
		{"SAVED_FIRST", "TRUE", ""},
	},
}
