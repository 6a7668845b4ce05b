package holdfast

// CheckNames refuses the prefix or schema that [WithPrefix] or [WithSchema]
// would refuse on e, before a database is at hand.
func CheckNames(e Engine, prefix, schema string) error {
	if err := checkPrefix(prefix); err != nil {
		return err
	}
	d, err := findDialect(e)
	if err != nil {
		return err
	}
	return checkIdent("WithSchema", schema, d.MaxIdent, true)
}
