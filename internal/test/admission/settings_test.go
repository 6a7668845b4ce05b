package admission_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/dialect"
	"github.com/holdfast-go/holdfast/internal/test/dbtest"
)

// settings returns possible settings of sessions and drivers, as parameters of a URL. In
// "setting!check", the named check must refuse the setting.
func settings(e dbtest.Engine) []string {
	switch e {
	case dbtest.Postgres:
		return append(postgresSettings, postgresModes...)
	case dbtest.SQLite:
		return append(pragmas("journal_mode(OFF)!journal", "query_only(1)!read only", "ignore_check_constraints(1)!ignore_check_constraints", "read_uncommitted(1)!read uncommitted"),
			append(sqliteParams, pragmas(sqlitePragmas...)...)...)
	}
	list := slices.Clone(innodbSettings)
	if e == dbtest.MySQL {
		return append(list, mysqlSettings...)
	}
	return append(list, mariadbSettings...)
}

func pragmas(list ...string) []string {
	out := make([]string, len(list))
	for i, p := range list {
		out[i] = "_pragma=" + p
	}
	return out
}

var sqliteParams = []string{"_txlock=immediate", "_txlock=exclusive", "_txlock=deferred", "_time_format=sqlite", "_pragma=busy_timeout(1)&_txlock=immediate"}

var sqlitePragmas = []string{
	"synchronous(0)", "synchronous(1)", "synchronous(2)", "synchronous(3)", "journal_mode(DELETE)", "journal_mode(TRUNCATE)", "journal_mode(PERSIST)", "journal_mode(MEMORY)", "journal_mode(WAL)",
	"cache_size(1)", "cache_size(-100000)", "cache_spill(0)", "case_sensitive_like(1)", "cell_size_check(1)", "checkpoint_fullfsync(1)", "count_changes(1)", "defer_foreign_keys(1)",
	"foreign_keys(0)", "fullfsync(1)", "journal_size_limit(0)", "legacy_alter_table(1)", "mmap_size(0)", "mmap_size(268435456)", "page_size(512)", "page_size(65536)",
	"recursive_triggers(1)", "recursive_triggers(0)", "reverse_unordered_selects(1)", "secure_delete(1)", "secure_delete(0)", "short_column_names(0)", "full_column_names(1)", "empty_result_callbacks(1)",
	"temp_store(1)", "temp_store(2)", "threads(2)", "trusted_schema(0)", "wal_autocheckpoint(1)", "wal_autocheckpoint(0)", "automatic_index(0)", "auto_vacuum(1)", "analysis_limit(1)", "encoding('UTF-16')",
	"busy_timeout(5000)", "soft_heap_limit(100000)", "application_id(7)",
}

// postgresModes are pgx's ways to send a statement.
var postgresModes = []string{
	"default_query_exec_mode=simple_protocol", "default_query_exec_mode=exec", "default_query_exec_mode=cache_describe", "default_query_exec_mode=describe_exec",
	"statement_cache_capacity=2", "description_cache_capacity=0", "target_session_attrs=read-write",
	"default_query_exec_mode=simple_protocol&client_encoding=UTF8", "default_query_exec_mode=exec&default_transaction_isolation=serializable",
}

var postgresSettings = []string{
	"default_transaction_read_only=on!read only", "session_replication_role=replica!triggers", "zero_damaged_pages=on!damaged pages", "ignore_checksum_failure=on!damaged pages",
	"default_transaction_isolation=read%20uncommitted", "default_transaction_isolation=repeatable%20read", "default_transaction_isolation=serializable", "default_transaction_deferrable=on",
	"statement_timeout=30000", "lock_timeout=7000", "idle_in_transaction_session_timeout=30000", "idle_session_timeout=60000", "session_replication_role=local",
	"synchronous_commit=off", "synchronous_commit=local", "commit_delay=100", "TimeZone=Europe%2FBerlin", "TimeZone=Pacific%2FApia", "DateStyle=German", "IntervalStyle=iso_8601",
	"extra_float_digits=-15", "extra_float_digits=3", "bytea_output=escape!bytea_output", "client_min_messages=error", "client_min_messages=debug1", "transform_null_equals=on", "quote_all_identifiers=on",
	"array_nulls=off", "backslash_quote=off", "escape_string_warning=off", "plan_cache_mode=force_generic_plan", "plan_cache_mode=force_custom_plan", "jit=on&jit_above_cost=0",
	"enable_seqscan=off", "enable_indexscan=off&enable_bitmapscan=off&enable_indexonlyscan=off", "enable_nestloop=off", "enable_hashjoin=off&enable_mergejoin=off", "enable_material=off",
	"enable_sort=off", "enable_hashagg=off", "from_collapse_limit=1", "join_collapse_limit=1", "geqo=off", "random_page_cost=100", "work_mem=64", "hash_mem_multiplier=1",
	"max_parallel_workers_per_gather=4&parallel_setup_cost=0&min_parallel_table_scan_size=0", "row_security=off", "default_toast_compression=lz4", "check_function_bodies=off", "vacuum_cost_delay=10",
	"gin_fuzzy_search_limit=1", "cursor_tuple_fraction=1", "temp_buffers=800", "tcp_keepalives_idle=1", "application_name=it%27s", "xmloption=document", "lc_messages=C", "stats_fetch_consistency=none",
	"constraint_exclusion=on", "default_statistics_target=1", "debug_parallel_query=regress",
}

var innodbSettings = []string{
	"autocommit=0!autocommit", "completion_type=1!completion_type", "completion_type=2!completion_type", "charset=gbk!character set", "charset=gbk&interpolateParams=true!character set",
	"charset=sjis!character set", "charset=cp932!character set", "charset=big5!character set", "charset=gb2312!character set", "charset=swe7!character set", "unique_checks=0!unique_checks", "sql_select_limit=10!sql_select_limit",
	"timestamp=1000000000!timestamp",
	"charset=latin1!character set", "charset=latin1&interpolateParams=true!character set", "charset=utf8mb4&interpolateParams=true", "charset=ascii!character set", "charset=ujis!character set", "charset=euckr!character set", "charset=cp850!character set", "charset=cp1251!character set",
	"collation=utf8mb4_general_ci", "collation=latin1_swedish_ci!character set", "interpolateParams=true", "clientFoundRows=true", "clientFoundRows=true&interpolateParams=true", "columnsWithAlias=true", "multiStatements=true",
	"parseTime=true", "parseTime=true&loc=Europe%2FBerlin", "rejectReadOnly=true", "checkConnLiveness=false", "maxAllowedPacket=0", "compress=true", "readTimeout=30s&writeTimeout=30s", "tls=false",
	"time_zone=%27%2B14:00%27", "time_zone=%27-12:00%27", "sql_mode=%27%27", "sql_mode=%27ANSI%27", "sql_mode=%27TRADITIONAL%27", "sql_mode=%27ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT%27",
	"sql_mode=%27ONLY_FULL_GROUP_BY,HIGH_NOT_PRECEDENCE,IGNORE_SPACE%27", "sql_mode=%27NO_UNSIGNED_SUBTRACTION,NO_AUTO_VALUE_ON_ZERO%27&interpolateParams=true",
	"innodb_lock_wait_timeout=1", "innodb_lock_wait_timeout=500", "lock_wait_timeout=3", "wait_timeout=60", "net_write_timeout=5", "net_read_timeout=5", "sql_auto_is_null=1", "foreign_key_checks=0",
	"sql_big_selects=0", "max_join_size=1000000", "group_concat_max_len=4", "div_precision_increment=0", "max_sort_length=8", "optimizer_prune_level=0", "optimizer_search_depth=1", "sort_buffer_size=32768",
	"join_buffer_size=1024", "read_buffer_size=8192", "tmp_table_size=1024", "max_heap_table_size=16384", "sql_warnings=1", "sql_notes=0", "low_priority_updates=1", "innodb_strict_mode=0", "innodb_table_locks=0",
	"auto_increment_increment=2", "default_week_format=1", "updatable_views_with_limit=0", "eq_range_index_dive_limit=1", "query_prealloc_size=8192", "max_length_for_sort_data=4",
}

var mysqlSettings = []string{
	"binlog_format=%27STATEMENT%27!binlog_format", "sql_log_bin=0!sql_log_bin", "transaction_read_only=1!read only", "charset=gb18030!character set",
	"binlog_format=%27MIXED%27", "sql_safe_updates=1", "transaction_isolation=%27READ-UNCOMMITTED%27!read uncommitted", "transaction_isolation=%27READ-COMMITTED%27", "transaction_isolation=%27SERIALIZABLE%27",
	"max_execution_time=10000", "cte_max_recursion_depth=1", "explicit_defaults_for_timestamp=0", "internal_tmp_mem_storage_engine=%27MEMORY%27", "sql_require_primary_key=1", "windowing_use_high_precision=0",
	"show_create_table_verbosity=1", "session_track_gtids=%27OWN_GTID%27", "range_optimizer_max_mem_size=1000", "default_collation_for_utf8mb4=%27utf8mb4_general_ci%27", "require_row_format=0", "end_markers_in_json=1",
	"optimizer_switch=%27derived_merge=off%27", "optimizer_switch=%27mrr=off,index_merge=off%27", "transaction_allow_batching=1", "print_identified_with_as_hex=1",
}

var mariadbSettings = []string{
	"sql_safe_updates=1!sql_safe_updates", "sql_mode=%27ORACLE%27!sql_mode", "sql_mode=%27EMPTY_STRING_IS_NULL%27!sql_mode", "sql_mode=%27SIMULTANEOUS_ASSIGNMENT%27!sql_mode", "tx_read_only=1!read only", "check_constraint_checks=0!check_constraint_checks", "system_versioning_asof=%272020-01-01%27!system_versioning_asof", "wsrep_dirty_reads=1!wsrep_dirty_reads",
	"tx_isolation=%27READ-UNCOMMITTED%27!read uncommitted", "tx_isolation=%27READ-COMMITTED%27", "tx_isolation=%27SERIALIZABLE%27", "sql_mode=%27MSSQL%27", "sql_mode=%27DB2%27",
	"innodb_snapshot_isolation=1", "max_statement_time=10", "idle_transaction_timeout=30", "idle_write_transaction_timeout=30", "idle_readonly_transaction_timeout=30", "old_mode=%27NO_DUP_KEY_WARNINGS_WITH_IGNORE%27",
	"sql_if_exists=1", "in_predicate_conversion_threshold=0", "optimizer_switch=%27derived_merge=off%27", "optimizer_switch=%27mrr=on,join_cache_hashed=off%27", "use_stat_tables=%27NEVER%27", "rowid_merge_buff_size=0",
	"sql_quote_show_create=0", "standard_compliant_cte=0", "join_cache_level=0", "optimizer_use_condition_selectivity=1", "histogram_size=0", "max_recursive_iterations=1", "progress_report_time=0", "query_cache_type=0",
	"column_compression_threshold=0", "binlog_annotate_row_events=0", "expensive_subquery_limit=1", "system_versioning_asof=DEFAULT",
}

// notThere reports whether the server lacks the setting or that value of it.
func notThere(err error) bool {
	return slices.Contains([]string{"SQLSTATE 42704", "SQLSTATE 22023", "error 1193", "error 1231", "error 1298"}, dialect.Code(err))
}

// TestSettings checks that the promises hold under each setting of a session or a driver, or
// that Open refuses the setting by name. A server that does not know a setting returns an error.
func TestSettings(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, e dbtest.Engine) {
		held, refused, unknown := 0, 0, 0
		for _, setting := range settings(e) {
			param, check, _ := strings.Cut(setting, "!")
			t.Run(param, func(t *testing.T) {
				url := migrated(t, e)
				pool := dbtest.OpenSQL(t, dbtest.With(url, param))
				pool.SetMaxOpenConns(4) // no other test uses the sessions of this setting again
				db, err := open(t, pool)
				switch {
				case errors.Is(err, holdfast.ErrUnsupported):
					wantRefused(t, err, check)
					refused++
				case check == "" && notThere(err):
					t.Logf("the server or the driver does not take it: %v", err)
					unknown++
				case err != nil || check != "":
					t.Fatalf("want it refused by %q, got %v", check, err)
				default:
					promises(t, dbtest.OpenSQL(t, url), db)
					held++
				}
			})
		}
		t.Logf("%s: the promises hold in %d settings, %d are refused by name, %d do not exist", e, held, refused, unknown)
		if held < 40 {
			t.Errorf("only %d settings were tried", held)
		}
	})
}
