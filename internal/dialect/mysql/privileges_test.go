package mysql

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/dialect"
)

// TestGrantLines reads lines of SHOW GRANTS.
func TestGrantLines(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"GRANT USAGE ON *.* TO `a`@`%`":                                      "",
		"GRANT SELECT, UPDATE (`token`, `store`) ON `shop`.`t` TO `a`@`%`":   "SELECT,UPDATE SOME",
		"GRANT SELECT, INSERT ON `shop`.`other` TO `a`@`%`":                  "",
		"GRANT SELECT ON `other`.`t` TO `a`@`%`":                             "",
		"GRANT SELECT, LOCK TABLES ON `shop`.* TO `a`@`%`":                   "SELECT",
		"GRANT DELETE ON `sh\\_p`.* TO `a`@`%`":                              "",
		"GRANT DELETE ON `sh%`.* TO `a`@`%` WITH GRANT OPTION":               "DELETE",
		"GRANT DELETE ON `sh_p`.* TO `a`@`%`":                                "DELETE",
		"GRANT DELETE ON `sh_p`.`t` TO `a`@`%`":                              "",
		"GRANT ALL PRIVILEGES ON `shop`.* TO `a`@`%`":                        "ALTER,CREATE,DELETE,DROP,INDEX,INSERT,SELECT,TRIGGER,UPDATE",
		"GRANT `reaper`@`%` TO `a`@`%`":                                      "",
		"GRANT EXECUTE ON PROCEDURE `shop`.`t` TO `a`@`%`":                   "",
		"GRANT SELECT ON `shop`.`t` TO `a`@`%` IDENTIFIED BY PASSWORD '*AB'": "SELECT",
		"GRANT SYSTEM_USER,ROLE_ADMIN ON *.* TO `a`@`%`":                     "",
	} {
		all := dialect.Held{}
		addGrants(all, line, "shop", []string{"t"})
		if got := strings.Join(slices.Sorted(maps.Keys(all["t"])), ","); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}
