package routers_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	routers "github.com/holdfast-go/holdfast/examples/http"
)

// One tenant floods. It is refused beyond its burst, and another tenant is served.
func ExampleLimited() {
	served := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	tenant := func(r *http.Request) string { return r.Header.Get("X-Tenant") } // as the service has authenticated it
	h := routers.Limited(tenant, 1.0/3600, 2, served)
	for _, who := range []string{"eve", "eve", "eve", "anna"} {
		r := httptest.NewRequest(http.MethodPost, "/refunds", nil)
		r.Header.Set("X-Tenant", who)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Printf("%s %d %q\n", who, w.Code, w.Header().Get("Retry-After"))
	}
	// Output:
	// eve 201 ""
	// eve 201 ""
	// eve 429 "1"
	// anna 201 ""
}
