package mysql

// ServerClock is the server's own clock in µs since 1970, which SET timestamp does not stop.
const ServerClock = serverClock
