// Package cluster contains only tests. They start clusters of real servers (Galera of three and
// of five nodes, MySQL groups, PostgreSQL with synchronous standbys), and kill, freeze, cut off and
// promote nodes while client processes request refunds. Then they count the rows in the tables of
// every node. Other storms compare what each COMMIT answered with the tables, and judge the
// history of leases that holders on several nodes want.
//
// The tests need MariaDB with Galera, PostgreSQL and Docker on this machine, and take minutes. A
// Galera node is cut off in a network namespace, which root makes. Run them with
//
//	make cluster
//	make cluster ARGS=-short
//
// docs/howto/clusters.md describes what is safe on which cluster.
package cluster
