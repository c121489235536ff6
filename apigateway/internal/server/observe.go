package server

import (
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
)

// mounted is a route with its metrics, so that they are not looked up for every request.
type mounted struct {
	Route

	mu      sync.RWMutex
	seconds prometheus.Observer
	// answers counts responses by status.
	answers map[int]prometheus.Counter
}

// figures returns the route's metrics for a status.
func (m *mounted) figures(all metrics, status int) (prometheus.Counter, prometheus.Observer) {
	m.mu.RLock()
	count, seconds := m.answers[status], m.seconds
	m.mu.RUnlock()
	if count != nil {
		return count, seconds
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.answers == nil {
		m.answers, m.seconds = map[int]prometheus.Counter{}, all.seconds.WithLabelValues(m.Method, m.Path)
	}
	m.answers[status] = all.requests.WithLabelValues(m.Method, m.Path, strconv.Itoa(status))
	return m.answers[status], m.seconds
}

// observe measures and logs requests by route, not by path, because paths are unbounded.
func (s *Server) observe(c *gin.Context) {
	began := time.Now()
	c.Next()
	took := time.Since(began)
	s.measure(c, took)
	level := slog.LevelDebug
	if len(c.Errors) > 0 {
		level = levelOf(c.Writer.Status())
	}
	if ctx := c.Request.Context(); s.cfg.Log.Enabled(ctx, level) {
		s.cfg.Log.LogAttrs(ctx, level, "request", attrsOf(c, took)...)
	}
}

// noPath is the label of requests without a route.
const noPath = "none"

func (s *Server) measure(c *gin.Context, took time.Duration) {
	method, path, status := c.Request.Method, c.FullPath(), c.Writer.Status()
	if m, ok := s.routes[method][path]; ok {
		count, seconds := m.figures(s.metrics, status)
		count.Inc()
		seconds.Observe(took.Seconds())
		return
	}
	if path == "" {
		path = noPath
	}
	s.metrics.requests.WithLabelValues(bounded(method), path, strconv.Itoa(status)).Inc()
	s.metrics.seconds.WithLabelValues(bounded(method), path).Observe(took.Seconds())
}

// levelOf returns the log level for a failed request.
func levelOf(status int) slog.Level {
	switch {
	case status == http.StatusInternalServerError:
		return slog.LevelError
	case status > http.StatusInternalServerError:
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// attrsOf returns the log attributes of a request.
func attrsOf(c *gin.Context, took time.Duration) []slog.Attr {
	path := c.FullPath()
	if path == "" {
		path = noPath
	}
	attrs := []slog.Attr{
		slog.String("method", c.Request.Method), slog.String("route", path), slog.Int("status", c.Writer.Status()),
		slog.Duration("took", took), slog.String("ip", c.ClientIP()), slog.String("requestId", RequestID(c)),
		slog.String("correlationId", c.Writer.Header().Get(headerCorrelationID)),
	}
	if len(c.Errors) > 0 { // the cause is not in the response
		attrs = append(attrs, slog.Any("error", c.Errors.Last().Err))
	}
	return attrs
}

// bounded limits the values of the method label, because clients can send any method.
func bounded(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}
