package dialect

import "math"

// VersionType describes what a column type can hold as the version of a row. The zero value
// holds none.
type VersionType struct {
	// Last is the largest signed integer that fits, or 0 for other types. An unsigned type
	// counts as signed: Holdfast refuses a version that ends early, but would lose one that
	// the engine clamps.
	Last int64
	// Text and Bytes: the type accepts a UUID as text, or as 16 bytes.
	Text, Bytes bool
}

// VersionOf is Rows.Version for engines that enforce the declared type of a column.
func VersionOf(typ string) VersionType {
	switch typ {
	case "tinyint":
		return VersionType{Last: math.MaxInt8}
	case "smallint", "int2":
		return VersionType{Last: math.MaxInt16}
	case "mediumint":
		return VersionType{Last: 1<<23 - 1}
	case "int", "int4":
		return VersionType{Last: math.MaxInt32}
	case "bigint", "int8":
		return VersionType{Last: math.MaxInt64}
	case "uuid", "char", "varchar", "bpchar", "text":
		return VersionType{Text: true}
	case "binary", "varbinary", "bytea":
		return VersionType{Bytes: true}
	}
	return VersionType{}
}
