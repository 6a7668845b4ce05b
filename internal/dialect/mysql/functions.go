package mysql

import "strings"

// ServerClock is the server's own clock in µs since 1970, which SET timestamp does not stop. MariaDB's
// UUID() has its own type, so it is made text first. Open does not: in sessions with another
// character set, or with EMPTY_STRING_IS_NULL, CONCAT fails before Open can refuse them by name.
var ServerClock = strings.Replace(serverClock, `UUID()`, `CONCAT(UUID(), '')`, 1)
