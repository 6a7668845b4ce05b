// Package cluster contains only tests. They start clusters of real servers (Galera of three and
// of five nodes, PostgreSQL with synchronous standbys), and kill, stop and promote nodes while
// client processes request refunds. Then they count the rows in the tables of every node.
//
// The tests need MariaDB with Galera and PostgreSQL on this machine, and take minutes. Run them
// with
//
//	make cluster
//	make cluster ARGS=-short
//
// docs/howto/clusters.md describes what is safe on which cluster.
package cluster
