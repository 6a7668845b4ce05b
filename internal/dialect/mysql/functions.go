package mysql

import "strings"

// ServerClock is the server's own clock in µs since 1970, which SET timestamp does not stop. On MariaDB
// UUID() has a type of its own, so it is made text first.
var ServerClock = strings.Replace(serverClock, `UUID()`, `CONCAT(UUID(), '')`, 1)
