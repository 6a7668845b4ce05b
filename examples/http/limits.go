package routers

import (
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxTenants bounds the limiters that are kept.
const maxTenants = 10_000

// Limited refuses requests with 429, before anything of them is read: those of one tenant beyond perSecond
// and burst. tenant is the id that the service has authenticated. It stands in front of the middleware of
// package idemhttp, which never counts 429 as an answer to keep.
func Limited(tenant func(*http.Request) string, perSecond rate.Limit, burst int, next http.Handler) http.Handler {
	var mu sync.Mutex
	limiters := map[string]*rate.Limiter{}
	of := func(id string) *rate.Limiter {
		mu.Lock()
		defer mu.Unlock()
		if limiters[id] == nil {
			if len(limiters) >= maxTenants {
				clear(limiters) // all have their burst again
			}
			limiters[id] = rate.NewLimiter(perSecond, burst)
		}
		return limiters[id]
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !of(tenant(r)).AllowN(time.Now(), 1) {
			w.Header().Set("Retry-After", "1")
			http.Error(w, http.StatusText(http.StatusTooManyRequests), http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	})
}
