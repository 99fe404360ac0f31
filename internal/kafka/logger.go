package kafka

import (
	"context"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kgo"
)

// NewLogger hands the client's messages to slog, its informational ones as
// debug messages: a client tells of every transaction.
func NewLogger(l *slog.Logger) kgo.Logger { return clientLogger{l} }

type clientLogger struct{ l *slog.Logger }

func (c clientLogger) Level() kgo.LogLevel {
	ctx := context.Background()
	switch {
	case c.l.Enabled(ctx, slog.LevelDebug):
		return kgo.LogLevelInfo
	case c.l.Enabled(ctx, slog.LevelWarn):
		return kgo.LogLevelWarn
	case c.l.Enabled(ctx, slog.LevelError):
		return kgo.LogLevelError
	}
	return kgo.LogLevelNone
}

func (c clientLogger) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	l := slog.LevelDebug
	switch level {
	case kgo.LogLevelWarn:
		l = slog.LevelWarn
	case kgo.LogLevelError:
		l = slog.LevelError
	}
	c.l.Log(context.Background(), l, "kafka client: "+msg, keyvals...)
}
