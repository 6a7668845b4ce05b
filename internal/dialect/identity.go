package dialect

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Standing says how much is known about a product and version.
type Standing int

const (
	// Tested: the test runs name the version.
	Tested Standing = iota
	// Untested: the user may allow it after `holdfast prove` has passed on it.
	Untested
	// Unfit: a promise does not hold on it, or the version is too old.
	Unfit
)

// Identity is the product of a server and its standing.
type Identity struct {
	// Product includes the first numbers of the version: "PostgreSQL 18", "Aurora MySQL 8.0".
	Product string
	Standing
	// Why is the reason if the product is unfit.
	Why string
}

// LookAlike is a different product that speaks an engine's protocol.
type LookAlike struct {
	// Marks are substrings of version() or of the product's variables.
	Marks []string
	// Name is the product. Why is the promise that does not hold on it.
	Name, Why string
}

// The reasons for products on which no suite ran, and which are different engines according to
// their vendors.
const (
	notPostgres = "it speaks PostgreSQL's protocol, and its locks, unique keys or transactions are its own: no suite ran there"
	notMySQL    = "it speaks MySQL's protocol, and its locks, unique keys or transactions are its own: no suite ran there"
)

// LookAlikes are the products that Holdfast refuses by name. Products that run the same server
// under another name are not in the list.
var LookAlikes = []LookAlike{
	{[]string{"CockroachDB"}, "CockroachDB", notPostgres},
	{[]string{"-YB-", "Yugabyte"}, "YugabyteDB", notPostgres},
	{[]string{"Redshift"}, "Redshift", "its unique keys are not enforced"},
	{[]string{"Greenplum"}, "Greenplum", notPostgres},
	{[]string{"Cloudberry"}, "Cloudberry", notPostgres},
	{[]string{"openGauss", "GaussDB"}, "openGauss", notPostgres},
	{[]string{"Materialize"}, "Materialize", notPostgres},
	{[]string{"RisingWave"}, "RisingWave", notPostgres},
	{[]string{"CrateDB"}, "CrateDB", notPostgres},
	{[]string{"QuestDB"}, "QuestDB", notPostgres},
	{[]string{"Postgres-XL", "Postgres-X2"}, "Postgres-XL", notPostgres},
	{[]string{"Citus"}, "Citus", "a claim has to be on one shard, and no suite ran there"},
	{[]string{"OceanBase"}, "OceanBase", notMySQL},
	{[]string{"Dolt"}, "Dolt", "FOR UPDATE locks nothing"},
	{[]string{"Percona XtraDB Cluster"}, "Percona XtraDB Cluster", "row locks end at their node, and no suite ran there"},
	{[]string{"SingleStore", "MemSQL"}, "SingleStore", notMySQL},
	{[]string{"StarRocks"}, "StarRocks", notMySQL},
	{[]string{"Doris"}, "Doris", notMySQL},
	{[]string{"Xpand", "Clustrix"}, "Xpand", notMySQL},
	{[]string{"PolarDB-X", "PXC-", "TDDL"}, "PolarDB-X", notMySQL},
	{[]string{"Databend"}, "Databend", notMySQL},
	{[]string{"Manticore"}, "Manticore", notMySQL},
}

// LookAlikeIn returns the first look-alike whose mark occurs in texts.
func LookAlikeIn(texts ...string) (Identity, bool) {
	all := strings.ToLower(strings.Join(texts, "\n"))
	for _, l := range LookAlikes {
		if slices.ContainsFunc(l.Marks, func(mark string) bool { return strings.Contains(all, strings.ToLower(mark)) }) {
			return Identity{l.Name, Unfit, l.Why}, true
		}
	}
	return Identity{}, false
}

var versionNumbers = regexp.MustCompile(`(\d+)\.(\d+)`)

// Numbers returns the first two numbers of a version.
func Numbers(version string) (major, minor int, ok bool) {
	m := versionNumbers.FindStringSubmatch(version)
	if m == nil {
		return 0, 0, false
	}
	major, _ = strconv.Atoi(m[1])
	minor, _ = strconv.Atoi(m[2])
	return major, minor, true
}

// TooOld returns the identity of a version below the floor.
func TooOld(product, floor string) Identity {
	return Identity{product, Unfit, "it is older than " + floor + ", the oldest version that Holdfast works with"}
}
