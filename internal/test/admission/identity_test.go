package admission_test

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/dialect"
	mariadbdialect "github.com/holdfast-go/holdfast/internal/dialect/mariadb"
	mysqldialect "github.com/holdfast-go/holdfast/internal/dialect/mysql"
	postgresdialect "github.com/holdfast-go/holdfast/internal/dialect/postgres"
	sqlitedialect "github.com/holdfast-go/holdfast/internal/dialect/sqlite"
	tidbdialect "github.com/holdfast-go/holdfast/internal/dialect/tidb"
	vitessdialect "github.com/holdfast-go/holdfast/internal/dialect/vitess"
)

// TestIdentity checks that servers are identified by their own answers, not by the first digit
// of a banner.
func TestIdentity(t *testing.T) {
	t.Parallel()
	type facts = dialect.Facts
	pg := func(version, number string, more ...string) facts {
		f := facts{"version": version, "server_version_num": number}
		for i := 0; i < len(more); i += 2 {
			f[more[i]] = more[i+1]
		}
		return f
	}
	const stock = " on x86_64-pc-linux-gnu, compiled by gcc (Debian 12.2.0-14) 12.2.0, 64-bit"
	for _, c := range []struct {
		of       dialect.Admission
		facts    facts
		product  string
		standing dialect.Standing
	}{
		{postgresdialect.Dialect.Admission, pg("PostgreSQL 18.6 (Debian 18.6-3)"+stock, "180006"), "PostgreSQL 18", dialect.Tested},
		{postgresdialect.Dialect.Admission, pg("PostgreSQL 15.18 (Debian 15.18-0+deb12u1)"+stock, "150018"), "PostgreSQL 15", dialect.Tested},
		{postgresdialect.Dialect.Admission, pg("PostgreSQL 17.11 (Debian 17.11-0+deb13u1)"+stock, "170011"), "PostgreSQL 17", dialect.Tested},
		{postgresdialect.Dialect.Admission, pg("PostgreSQL 16.14"+stock, "160014"), "PostgreSQL 16", dialect.Tested},
		{postgresdialect.Dialect.Admission, pg("PostgreSQL 19beta1 (Debian)"+stock, "190000"), "PostgreSQL 19", dialect.Untested},
		{postgresdialect.Dialect.Admission, pg("PostgreSQL 12.20"+stock, "120020"), "PostgreSQL 12", dialect.Unfit},
		{postgresdialect.Dialect.Admission, pg("PostgreSQL 15.4"+stock, "150004", "aurora", "aurora_version"), "Aurora PostgreSQL 15", dialect.Untested},
		{postgresdialect.Dialect.Admission, pg("PostgreSQL 15.4"+stock, "150004", "vendor", "alloydb.iam_authentication"), "AlloyDB 15", dialect.Untested},
		{postgresdialect.Dialect.Admission, pg("PostgreSQL 15.4"+stock, "150004", "vendor", "cloudsql.enable_pgaudit"), "Cloud SQL for PostgreSQL 15", dialect.Untested},
		{postgresdialect.Dialect.Admission, pg("PostgreSQL 15.4"+stock, "150004", "vendor", "rds.extensions"), "RDS for PostgreSQL 15", dialect.Untested},
		{postgresdialect.Dialect.Admission, pg("PostgreSQL 15.4 forked by somebody", "150004"), "relative of PostgreSQL 15", dialect.Untested},
		{postgresdialect.Dialect.Admission, pg("PostgreSQL 15.2-YB-2.25.1.0-b0 on x86_64", "150002"), "YugabyteDB", dialect.Unfit},
		{postgresdialect.Dialect.Admission, pg("PostgreSQL 12.12 (Greenplum Database 7.1.0)"+stock, "120012"), "Greenplum", dialect.Unfit},
		{postgresdialect.Dialect.Admission, pg("PostgreSQL 9.2.4 (openGauss 5.0.0 build a07d57c3)"+stock, "90204"), "openGauss", dialect.Unfit},
		{postgresdialect.Dialect.Admission, pg("PostgreSQL 9.5.0-RisingWave-1.7.0", "90500"), "RisingWave", dialect.Unfit},
		{postgresdialect.Dialect.Admission, pg("PostgreSQL 15.4"+stock, "150004", "extension", "citus"), "Citus", dialect.Unfit},

		{mysqldialect.Dialect.Admission, facts{"version": "9.7.4-2", "version_comment": "(Debian)"}, "MySQL 9.7", dialect.Tested},
		{mysqldialect.Dialect.Admission, facts{"version": "9.7.1", "version_comment": "MySQL Community Server - GPL"}, "MySQL 9.7", dialect.Tested},
		{mysqldialect.Dialect.Admission, facts{"version": "8.4.6", "version_comment": "MySQL Community Server - GPL"}, "MySQL 8.4", dialect.Untested},
		{mysqldialect.Dialect.Admission, facts{"version": "5.7.44-log", "version_comment": "MySQL Community Server"}, "MySQL 5.7", dialect.Unfit},
		{mysqldialect.Dialect.Admission, facts{"version": "8.0.39", "aurora_version": "3.08.0", "version_comment": "Source distribution"}, "Aurora MySQL 8.0", dialect.Untested},
		{mysqldialect.Dialect.Admission, facts{"version": "8.0.36-28", "version_comment": "Percona Server (GPL), Release 28"}, "Percona Server 8.0", dialect.Untested},
		{mysqldialect.Dialect.Admission, facts{"version": "8.4.6-google", "version_comment": "(Google)"}, "Cloud SQL for MySQL 8.4", dialect.Untested},
		{mysqldialect.Dialect.Admission, facts{"version": "8.0.40", "basedir": "/rdsdbbin/mysql-8.0.40/"}, "RDS for MySQL 8.0", dialect.Untested},
		{mysqldialect.Dialect.Admission, facts{"version": "8.0.36-28.1", "version_comment": "Percona XtraDB Cluster (GPL), Release rel28"}, "Percona XtraDB Cluster", dialect.Unfit},
		{mysqldialect.Dialect.Admission, facts{"version": "8.0.36", "wsrep_provider": "/usr/lib/galera4/libgalera_smm.so"}, "Percona XtraDB Cluster", dialect.Unfit},
		{mysqldialect.Dialect.Admission, facts{"version": "9.7.4", "version_comment": "(Debian)", "answered": "Version: 24.0.0 (Git revision 1)"}, "router before MySQL", dialect.Unfit},
		{mysqldialect.Dialect.Admission, facts{"version": "9.7.4", "version_comment": "(Debian)", "answered": "(Debian)"}, "MySQL 9.7", dialect.Tested},
		{mysqldialect.Dialect.Admission, facts{"version": "8.0.33", "version_comment": "Dolt"}, "Dolt", dialect.Unfit},
		{mysqldialect.Dialect.Admission, facts{"version": "8.0.33", "dolt_version": "1.50.0"}, "Dolt", dialect.Unfit},
		{mysqldialect.Dialect.Admission, facts{"version": "5.7.25", "version_comment": "OceanBase 4.2.1.0"}, "OceanBase", dialect.Unfit},
		{mysqldialect.Dialect.Admission, facts{"version": "5.7.32", "version_comment": "SingleStoreDB source distribution"}, "SingleStore", dialect.Unfit},
		{mysqldialect.Dialect.Admission, facts{"version": "8.0.11", "version_comment": "TiDB Server (Apache License 2.0)"}, "TiDB", dialect.Unfit},

		{vitessdialect.Dialect.Admission, facts{"version": "8.4.6-Vitess", "version_comment": "Version: 24.0.0 (Git revision 1)"}, "Vitess 24.0", dialect.Tested},
		{vitessdialect.Dialect.Admission, facts{"version": "8.4.6-Vitess", "version_comment": "Version: 25.0.0 (Git revision 1)"}, "Vitess 25.0", dialect.Untested},
		{vitessdialect.Dialect.Admission, facts{"version": "8.0.30-Vitess", "version_comment": "Version: 19.0.4 (Git revision 1)"}, "Vitess 19.0", dialect.Unfit},
		{vitessdialect.Dialect.Admission, facts{"version": "8.0.30-Vitess", "version_comment": "PlanetScale"}, "Vitess", dialect.Untested},

		{tidbdialect.Dialect.Admission, facts{"version": "8.0.11-TiDB-v8.4.0-this-is-a-placeholder"}, "TiDB 8.4", dialect.Tested},
		{tidbdialect.Dialect.Admission, facts{"version": "8.0.11-TiDB-v8.5.1"}, "TiDB 8.5", dialect.Untested},
		{tidbdialect.Dialect.Admission, facts{"version": "8.0.11-TiDB-v7.5.1-serverless"}, "TiDB 7.5", dialect.Untested},
		{tidbdialect.Dialect.Admission, facts{"version": "5.7.25-TiDB-v6.1.7"}, "TiDB 6.1", dialect.Unfit},

		{mariadbdialect.Dialect.Admission, facts{"version": "10.11.19-MariaDB-0+deb12u1"}, "MariaDB 10.11", dialect.Tested},
		{mariadbdialect.Dialect.Admission, facts{"version": "5.5.5-10.11.6-MariaDB-log"}, "MariaDB 10.11", dialect.Tested},
		{mariadbdialect.Dialect.Admission, facts{"version": "11.8.2-MariaDB-ubu2404"}, "MariaDB 11.8", dialect.Tested},
		{mariadbdialect.Dialect.Admission, facts{"version": "11.4.5-MariaDB-ubu2404"}, "MariaDB 11.4", dialect.Untested},
		{mariadbdialect.Dialect.Admission, facts{"version": "10.5.29-MariaDB"}, "MariaDB 10.5", dialect.Unfit},
		{mariadbdialect.Dialect.Admission, facts{"version": "10.6.20-16-MariaDB-enterprise-log"}, "MariaDB Enterprise 10.6", dialect.Untested},
		{mariadbdialect.Dialect.Admission, facts{"version": "10.5.12-Xpand-MariaDB"}, "Xpand", dialect.Unfit},

		{sqlitedialect.Dialect.Admission, facts{"version": "3.54.1"}, "SQLite 3", dialect.Tested},
		{sqlitedialect.Dialect.Admission, facts{"version": "3.41.0"}, "SQLite 3.41.0", dialect.Unfit},
	} {
		is := c.of.Identify(c.facts)
		if is.Product != c.product || is.Standing != c.standing || (is.Standing == dialect.Unfit) != (is.Why != "") {
			t.Errorf("%v: got %+v, want %s (%d)", c.facts, is, c.product, c.standing)
		}
	}
}

// TestSeveralWriters checks servers of clusters in which other servers accept writes too.
func TestSeveralWriters(t *testing.T) {
	t.Parallel()
	group := func(mode, member string, consistency ...string) dialect.Facts {
		return dialect.Facts{
			"group_replication_group_name": "b1f3", "group_replication_single_primary_mode": mode, "group_member": member,
			"group_replication_consistency": strings.Join(consistency, ""),
		}
	}
	for _, c := range []struct {
		of      dialect.Admission
		facts   dialect.Facts
		refused bool
	}{
		{mysqldialect.Dialect.Admission, group("ON", "ONLINE PRIMARY"), false},
		{mysqldialect.Dialect.Admission, group("OFF", "ONLINE PRIMARY", "BEFORE_ON_PRIMARY_FAILOVER"), true},
		{mysqldialect.Dialect.Admission, group("OFF", "ONLINE PRIMARY", "AFTER"), true},
		{mysqldialect.Dialect.Admission, group("OFF", "ONLINE PRIMARY", "BEFORE"), false},
		{mysqldialect.Dialect.Admission, group("OFF", "ONLINE PRIMARY", "BEFORE_AND_AFTER"), false},
		{mysqldialect.Dialect.Admission, group("OFF", "ERROR ", "BEFORE"), true},
		{mysqldialect.Dialect.Admission, group("ON", "ONLINE SECONDARY"), true},
		{mysqldialect.Dialect.Admission, group("ON", "ERROR "), true},
		{mysqldialect.Dialect.Admission, group("ON", ""), true}, // started outside of its group, or unreadable
		{postgresdialect.Dialect.Admission, dialect.Facts{"extension": "bdr"}, true},
		{postgresdialect.Dialect.Admission, dialect.Facts{"extension": "pglogical"}, true},
		{postgresdialect.Dialect.Admission, dialect.Facts{"extension": "spock"}, true},
		{postgresdialect.Dialect.Admission, dialect.Facts{}, false},
	} {
		c.facts["path"] = "pg_catalog,public"
		found := dialect.Refuse(c.of.RulesOf(t.Context(), false), c.facts)
		if (len(found) > 0) != c.refused {
			t.Errorf("%v: got %+v", c.facts, found)
		}
	}
	declared := postgresdialect.Dialect.Admission.RulesOf(t.Context(), true)
	if found := dialect.Refuse(declared, dialect.Facts{"extension": "pglogical", "path": "pg_catalog"}); len(found) > 0 {
		t.Errorf("declared as a single writer: got %+v", found)
	}

	// A guard that only locks must not go on where others have become primaries.
	rules := mysqldialect.Dialect.Admission.RulesOf(t.Context(), false)
	one, several := group("ON", "ONLINE PRIMARY", "BEFORE"), group("OFF", "ONLINE PRIMARY", "BEFORE")
	if found := dialect.Changed(rules, one, several); len(found) != 1 || found[0].Value != "OFF" {
		t.Errorf("a group that has got several primaries: %+v", found)
	}
	if found := dialect.Changed(rules, one, one); len(found) > 0 {
		t.Errorf("nothing has changed: %+v", found)
	}
}
