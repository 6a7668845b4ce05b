// Package similar finds similar operations in tables that exist: operations that were executed
// under different keys, and rows of the program's own tables, which are alike and close in time. It
// changes nothing.
package similar
