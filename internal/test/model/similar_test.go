//go:build !race

package model_test

var similar = model{
	file: "similar.pml",
	small: []run{
		{"ThreeOfTwoKeys", ""},
		{"FourOfThreeKeys", "-DCALLS=4 -DENDS=0 -DLOSES=0"},
	},
	large: []run{
		{"FourAndAWindow", "-DCALLS=4 -DENDS=1 -DLOSES=0"},
		{"FourAndALostCommit", "-DCALLS=4 -DENDS=0 -DLOSES=1 -DCONFIRMS=0"},
	},
	planted: []bug{
		{"CHECK_UNLOCKED", "ONCE", "-DLOSES=0 -DENDS=0 -DCONFIRMS=0"},
		{"ROW_LATE", "ONCE", "-DLOSES=0 -DENDS=0 -DCONFIRMS=0"},
		{"ROW_UNLOCKED", "ONCE", "-DLOSES=0 -DENDS=0 -DCONFIRMS=0"},
		{"CONFIRM_ANY", "TWICE", "-DCALLS=4 -DLOSES=0 -DENDS=0"},
		{"REFUSED_UNREAD", "REPLAY", "-DLOSES=0 -DENDS=0"},
		{"REJECT_KEEPS", "FREE", "-DLOSES=0 -DENDS=0 -DCONFIRMS=0"},
		{"ROW_FIRST", "DONE", "-DLOSES=0 -DENDS=0 -DCONFIRMS=0"},
	},
}
