package fragments

// redis behaves as the commands of Redis that the fragments use. The schedule turns its clock.
type redis struct {
	clock  *int // in seconds
	values map[string]entry
}

type entry struct {
	value string
	ends  int // 0: it has no expiry
}

func newRedis(clock *int) *redis { return &redis{clock, map[string]entry{}} }

func (r *redis) get(key string) (string, bool) {
	e, ok := r.values[key]
	if ok && e.ends != 0 && e.ends <= *r.clock {
		delete(r.values, key)
		return "", false
	}
	return e.value, ok
}

func (r *redis) setNX(key, value string) bool {
	if _, ok := r.get(key); ok {
		return false
	}
	r.values[key] = entry{value: value}
	return true
}

func (r *redis) expire(key string, seconds int) {
	if value, ok := r.get(key); ok {
		r.values[key] = entry{value, *r.clock + seconds}
	}
}

// setNXEX is SET key value NX EX seconds: both in one command.
func (r *redis) setNXEX(key, value string, seconds int) bool {
	if !r.setNX(key, value) {
		return false
	}
	r.expire(key, seconds)
	return true
}

func (r *redis) getSet(key, value string) string {
	old, _ := r.get(key)
	r.values[key] = entry{value: value}
	return old
}

func (r *redis) del(key string) { delete(r.values, key) }
