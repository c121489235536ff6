package server

import (
	"cmp"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"
)

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

// routeLabel returns a request's route, "none" for requests without one.
func routeLabel(c *gin.Context) string { return cmp.Or(c.FullPath(), "none") }

func (s *Server) measure(c *gin.Context, took time.Duration) {
	method, path := methodLabel(c.Request.Method), routeLabel(c)
	s.metrics.requests.WithLabelValues(method, path, strconv.Itoa(c.Writer.Status())).Inc()
	s.metrics.seconds.WithLabelValues(method, path).Observe(took.Seconds())
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
	attrs := []slog.Attr{
		slog.String("method", c.Request.Method), slog.String("route", routeLabel(c)), slog.Int("status", c.Writer.Status()),
		slog.Duration("took", took), slog.String("ip", c.ClientIP()), slog.String("requestId", RequestID(c)),
		slog.String("correlationId", c.Writer.Header().Get(headerCorrelationID)),
	}
	if len(c.Errors) > 0 { // the cause is not in the response
		attrs = append(attrs, slog.Any("error", c.Errors.Last().Err))
	}
	return attrs
}

// methodLabel limits the values of the method label, because clients can send any method.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}
