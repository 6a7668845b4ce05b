// Package cluster has no code of its own: its tests start clusters of real
// servers (Galera of three and of five nodes, PostgreSQL with synchronous
// standbys), kill, stop and promote nodes while client processes ask for refunds,
// and then count in the tables of every node.
//
// They need MariaDB with Galera and PostgreSQL on this machine, run for minutes
// and are run by
//
//	make cluster
//	make cluster ARGS=-short
//
// What is safe on which cluster is said in docs/clusters.md.
package cluster
