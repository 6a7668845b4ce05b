//go:build !race

package model_test

var outbox = model{
	file: "outbox.pml",
	small: []run{
		{"OneDies", "-DPASSES=1"},
		{"AnyClock", "-DPATIENT=0 -DDEATHS=0 -DPASSES=1"},
		{"NoneDies", "-DDEATHS=0"},
	},
	planted: []bug{
		{"LANE_UNLOCKED", "ORDER", "-DWRITERS=2 -DFAILS=0 -DDEATHS=0"},
		{"HEAD_SKIPS_DEAD", "ORDER", "-DDEATHS=0"},
		{"HEAD_IS_ANY", "ORDER", "-DFAILS=0 -DDEATHS=0"},
		{"FAILED_SKIPPED", "LOST", "-DDEATHS=0"},
		{"NOTED_FIRST", "LOST", "-DWRITERS=1 -DFAILS=0"},
		{"TAKE_UNTESTED", "ONCE", "-DWRITERS=1 -DFAILS=0 -DDEATHS=0"},
		{"LATER_STEALS", "ONCE", "-DFAILS=0 -DDEATHS=0"},
		{"PUT_OFF_ALL", "DONE", "-DFAILS=0 -DDEATHS=0"},
		{"LATER_UNREAD", "DONE", "-DWRITERS=2 -DFAILS=0 -DDEATHS=0"},
	},
}
