//go:build !race

package model_test

var (
	parks      = "-DMODE=PARK"
	takesOver  = "-DMODE=TAKEOVER"
	reconciles = "-DMODE=RECONCILE"
	news       = " -DNEWS=1"
	starts     = " -DSTART=1"
	accepts    = " -DACCEPTS=1"
	contradict = " -DCONTRADICTS=1"
	cancels    = " -DCANCEL=1"
	parted     = " -DPARTS=1"
)

var staged = model{
	file:  "staged.pml",
	short: 0,
	small: []run{
		{"Park", parks + news},
		{"TakeOver", takesOver + news},
		{"Reconcile", reconciles + news},
		{"ParkWithoutOperator", parks + news + " -DOPERATOR=0"},
		{"ParkStarted", parks + news + starts},
		{"ParkAccepted", parks + news + accepts},
		{"TakeOverAccepted", takesOver + news + accepts},
		{"ReconcileAccepted", reconciles + news + accepts},
		{"ParkContradicted", parks + news + contradict + " -DATTEMPTS=1"},
		{"ReconcileContradicted", reconciles + news + contradict},
		{"ParkCancelled", parks + cancels},
		{"TakeOverCancelled", takesOver + cancels},
		{"ReconcileCancelled", reconciles + cancels},
		{"StartedCancelled", reconciles + starts + cancels},
		{"ParkInParts", parks + parted},
		{"ReconcileInPartsCancelled", reconciles + parted + cancels},
	},
	large: []run{
		{"ParkCancelledNews", parks + news + accepts + cancels},
		{"ParkContradictedTwice", parks + news + contradict},
		{"ParkThrice", parks + news + " -DATTEMPTS=3"},
		{"TakeOverThrice", takesOver + news + " -DATTEMPTS=3"},
		{"ReconcileThrice", reconciles + news + " -DATTEMPTS=3"},
		{"ParkThree", parks + news + " -DWORKERS=3 -DATTEMPTS=1"},
		{"TakeOverThree", takesOver + news + " -DWORKERS=3 -DATTEMPTS=1"},
		{"ReconcileStartedAccepted", reconciles + news + starts + accepts + " -DATTEMPTS=3"},
		{"ReconcileThree", reconciles + news + " -DWORKERS=3 -DATTEMPTS=1"},
	},
	planted: []bug{
		{"OWN_UNTESTED", "STALE", parks},
		{"OWN_UNLOCKED", "STALE", parks},
		{"CLAIM_UNTESTED", "FINAL", parks},
		{"CLAIM_KEEPS_TOKEN", "CALLED", parks},
		{"LOCAL_APART", "BOOKED", parks},
		{"LOCAL_UNREAD", "BOOKED", parks},
		{"LOCAL_UNCLAIMED", "BOOKED", parks + parted},
		{"BEGIN_UNWRITTEN", "CALLED", parks},
		{"DOUBT_IGNORED", "CALLED", parks},
		{"DOUBT_FORGOTTEN", "CALLED", reconciles},
		{"TIMEOUT_IS_NO", "PAID", parks},
		{"CALL_LATE", "CALLED", parks},
		{"ASK_EARLY", "PAID", reconciles},
		{"KEY_OF_TOKEN", "PAID", takesOver},
		{"KEYS_IGNORED", "PAID", takesOver},
		{"END_OVERWRITES", "POINT", parks + news + contradict},
		{"NEWS_OVER_WORKER", "CALLED", parks + news},
		{"NEWS_FORGOTTEN", "DONE", parks + news},
		{"PARK_UNTESTED", "FINAL", parks},
		{"FINISH_UNTESTED", "FINAL", parks},
		{"SETTLE_PARKED", "DONE", parks},
		{"START_APART", "STARTS", parks + starts},
		{"START_OVERWRITES", "FINAL", parks + starts},
		{"ACCEPT_OVERWRITES", "POINT", parks + news + accepts},
		{"ACCEPT_IS_NO", "PAID", parks + accepts},
		{"ACCEPT_FORGOTTEN", "CALLED", reconciles + accepts},
		{"ASK_ACCEPTED", "PAID", reconciles + accepts},
		{"ANSWER_DROPPED", "HEARD", parks + news + contradict},
		{"EVENT_DROPPED", "HEARD", parks + news + contradict},
		{"EVENT_DECIDES", "HEARD", parks + news + contradict},
		{"ENDED_REFUSES", "LATE", parks + news},
		{"DOUBT_NOTDONE", "VOID", takesOver + cancels},
		{"CANCEL_BEGUN", "VOID", parks + cancels},
		{"CANCEL_UNLOCKED", "VOID", parks + cancels},
		{"CANCEL_ENDED", "FINAL", parks + cancels},
		{"CANCEL_UNWRITTEN", "VOID", parks + cancels},
		{"CANCEL_BOOKED", "VOID", parks + cancels},
		{"CANCEL_LAST", "BOOKED", parks + cancels + parted},
	},
}
