//go:build !race

package model_test

var claimFirst = model{
	file: "claimfirst.pml",
	small: []run{
		{"Two", "-DJOINED=0"},
		{"BesideDoTx", "-DCALLS=2 -DJOINED=1"},
		{"Parts", "-DPARTS=1 -DCALLS=2 -DJOINED=1"},
		{"Voided", "-DCALLS=1 -DVOIDS=2 -DJOINED=1"},
	},
	large: []run{
		{"Three", "-DCALLS=3 -DJOINED=1 -DTRIES=2"},
	},
	planted: []bug{
		{"NO_FENCE", "WHOLE", ""},
		{"FINISH_BLIND", "WHOLE", ""},
		{"CLAIM_PLAIN", "ONCE", ""},
		{"CLAIM_LATE", "OPEN", ""},
		{"ERROR_LEFT", "PART", "-DPARTS=1 -DJOINED=0"},
		{"WAIT_ON", "WHOLE", ""},
		{"VOID_OVER", "VOID", voids},
		{"VOID_UNWRITTEN", "VOID", voids},
	},
}
