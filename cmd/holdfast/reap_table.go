package main

import (
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/reaper"
)

// tableForm is the syntax of --table.
const tableForm = "TABLE:KEY,…:EXPIRES:UNIT[:GRACE], where UNIT is us, ms or s since 1970, timestamp (an instant) or utc (a time without a zone), such as sessions:id:expires_at:ms or audit:id:made_at:timestamp:720h"

var units = map[string]reaper.Unit{
	"us": reaper.Microseconds, "ms": reaper.Milliseconds, "s": reaper.Seconds,
	"timestamp": reaper.Timestamp, "utc": reaper.TimestampUTC,
}

// tableSpec parses one --table.
func tableSpec(text string) (spec reaper.Table, err error) {
	part := strings.Split(text, ":")
	if len(part) != 4 && len(part) != 5 {
		return spec, usage("--table is %s", tableForm)
	}
	unit, ok := units[part[3]]
	if !ok {
		return spec, usage("--table: UNIT must be us, ms, s, timestamp or utc: %s", tableForm)
	}
	spec = reaper.Table{TableSpec: holdfast.TableSpec{Table: part[0], Key: strings.Split(part[1], ",")}, Expires: part[2], Unit: unit}
	if len(part) == 5 {
		if spec.Grace, err = time.ParseDuration(part[4]); err != nil {
			return spec, usage("--table: GRACE is no duration, such as 720h: %s", tableForm)
		}
	}
	return spec, nil
}
