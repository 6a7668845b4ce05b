package locks

import (
	"github.com/holdfast-go/holdfast/bench/internal/servers"
	"github.com/holdfast-go/holdfast/bench/internal/sqlengine"
)

// Several is the number of processes that share the clients where a name says so.
const Several = 4

// Names of the competitors under contention.
const (
	PollFast = "bare upsert + delete, poll 1–3 ms"
	PollSlow = "bare upsert + delete, poll 5–15 ms"

	OursOne       = "Holdfast, one process"
	OursSeveral   = "Holdfast, 4 processes"
	OursTwo       = "Holdfast, 2 processes"
	OursFair      = "Holdfast Fair, one process"
	OursFairTwo   = "Holdfast Fair, 2 processes"
	OursFairMore  = "Holdfast Fair, 4 processes"
	ZooKeeperLock = "ZooKeeper Lock, 4 processes"

	// ListenByHand and BatonByHand hand a lease row over between two processes as fast as bare
	// statements can.
	ListenByHand = "LISTEN by hand, 2 processes"
	BatonByHand  = "baton by hand, 2 processes"
)

// Hot lists the competitors for which all clients want one key.
func Hot(group string) []Competitor {
	switch group {
	case sqlengine.Postgres:
		return append(ours(onPgx, Several), []Competitor{
			{Name: PollFast, Kind: Floor, Against: PollFast, Counts: true, Open: barePgx(false, pollFast)},
			{Name: PollSlow, Kind: Floor, Against: PollFast, Counts: true, Open: barePgx(false, pollSlow)},
			{Name: "advisory lock, pgx", Kind: Raw, Against: PollFast, Counts: true, Open: advisory},
			{Name: rowSQL, Kind: Raw, Against: PollFast, Counts: true, Open: rowLock},
			{Name: "like cirello.io/pglock, lib/pq, lease of 1 s", Kind: StandIn, Against: PollFast, Open: likePglock},
			{Name: "like allisson/go-pglock, lib/pq", Kind: StandIn, Against: PollFast, Open: likeGoPglock},
		}...)
	case sqlengine.MySQL, sqlengine.MariaDB:
		return append(ours(onSQL, Several), []Competitor{
			{Name: PollFast, Kind: Floor, Against: PollFast, Counts: true, Open: bareSQL(true, false, pollFast)},
			{Name: PollSlow, Kind: Floor, Against: PollFast, Counts: true, Open: bareSQL(true, false, pollSlow)},
			{Name: "GET_LOCK, interpolated", Kind: Raw, Against: PollFast, Counts: true, Open: getLock},
			{Name: rowInterp, Kind: Raw, Against: PollFast, Counts: true, Open: rowLock},
		}...)
	case sqlengine.SQLite:
		return append(ours(onSQL, Several), []Competitor{
			{Name: PollFast, Kind: Floor, Against: PollFast, Open: bareSQL(true, false, pollFast)},
			{Name: PollSlow, Kind: Floor, Against: PollFast, Open: bareSQL(true, false, pollSlow)},
		}...)
	case servers.Redis, servers.RedisDurable:
		const floor = "bare SET NX + script, poll 1–3 ms"
		return []Competitor{
			{Name: floor, Kind: Floor, Against: floor, Counts: true, Open: redisBare(group, pollFast)},
			{Name: "redsync, 1 node", Kind: Peer, Against: floor, Counts: true, Open: redSync(group, 1)},
			{Name: "redsync, 5 nodes", Kind: Peer, Against: floor, Counts: true, Open: redSync(group, servers.Nodes)},
			{Name: "redislock, 100 ms", Kind: Peer, Against: floor, Counts: true, Open: redisLock(group)},
		}
	case servers.Etcd:
		return []Competitor{{Name: "etcd concurrency.Mutex", Kind: Peer, Open: etcdMutex}}
	case servers.ZooKeeper:
		return []Competitor{{Name: ZooKeeperLock, Kind: Peer, Processes: Several, Open: zkLock}}
	}
	return nil
}

// ours lists Holdfast's locks, with all clients in one process and in n.
func ours[Tx any](open opens[Tx], n int) []Competitor {
	names := map[int][2]string{2: {OursTwo, OursFairTwo}, Several: {OursSeveral, OursFairMore}}[n]
	return []Competitor{
		{Name: OursOne, Kind: Ours, Against: PollFast, Counts: true, Open: lease(open)},
		{Name: names[0], Kind: Ours, Against: PollFast, Counts: true, Processes: n, Open: lease(open)},
		{Name: OursFair, Kind: Ours, Against: PollFast, Counts: true, Open: fair(open)},
		{Name: names[1], Kind: Ours, Against: PollFast, Counts: true, Processes: n, Open: fair(open)},
	}
}

// Handed lists the competitors for handing a lock over between two clients. On servers that can wake a waiter,
// they are compared with the form by hand.
func Handed(group string) []Competitor {
	list := Hot(group)
	var byHand []Competitor
	switch group {
	case sqlengine.Postgres:
		list = append(ours(onPgx, 2), list[4:]...)
		byHand = []Competitor{{Name: ListenByHand, Kind: Floor, Processes: 2, Open: listenByHand}}
	case sqlengine.MySQL, sqlengine.MariaDB:
		list = append(ours(onSQL, 2), list[4:]...)
		byHand = []Competitor{{Name: BatonByHand, Kind: Floor, Processes: 2, Open: batonByHand}}
	case sqlengine.SQLite:
		list = append(ours(onSQL, 2), list[4:]...)
	}
	list = append(byHand, list...)
	for i := range list {
		if len(byHand) > 0 {
			list[i].Against = byHand[0].Name
		}
	}
	return list
}
