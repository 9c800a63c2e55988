package gateway

import (
	"fmt"
	"log/slog"
	"net/http"
)

// Refuse returns an HTTP server that answers with what why returns, a *dataflow.Error: as text at /readyz, elsewhere as errors
// are everywhere. At /livez and /healthz it says that the process is alive.
func Refuse(why func() error, logger *slog.Logger) *http.Server {
	mux := http.NewServeMux()
	for _, path := range []string{"/healthz", "/livez"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { alive(w, r, nil) })
	}
	for _, path := range []string{"/readyz", "/readyz/reads"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { notReady(w, why()) })
	}
	mux.Handle("/", RefuseAll(why))
	return server(mux, logger)
}

// RefuseAll answers every request with what why returns, a *dataflow.Error.
func RefuseAll(why func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeError(w, why(), 0) })
}

// notReady says in a text why the node cannot serve.
func notReady(w http.ResponseWriter, why error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusServiceUnavailable)
	send(w, fmt.Appendf(nil, "not ready: %v\n", why))
}
