package holdfast

// Names checks the prefix and the schema as New does, for the engine e, and
// returns the prefix with the default applied. It needs no database.
func (o Options) Names(e Engine) (prefix, schema string, err error) {
	if o, err = o.withDefaults(); err != nil {
		return "", "", err
	}
	d, err := findDialect(e)
	if err != nil {
		return "", "", err
	}
	return o.Prefix, o.Schema, checkIdent("Options.Schema", o.Schema, d.MaxIdent, true)
}
