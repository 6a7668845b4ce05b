package main

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/holdfastotel"
)

// telemetry connects Holdfast to /metrics.
type telemetry struct {
	tracer  holdfast.Tracer
	meters  *sdkmetric.MeterProvider
	handler http.Handler
}

func newTelemetry() (*telemetry, error) {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo())
	if err != nil {
		return nil, err
	}
	// Spans go to the global provider, which does nothing unless one is set.
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	tracer, err := holdfastotel.New(holdfastotel.Options{MeterProvider: meters})
	if err != nil {
		return nil, err
	}
	return &telemetry{tracer, meters, promhttp.HandlerFor(registry, promhttp.HandlerOpts{})}, nil
}
