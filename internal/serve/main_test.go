package serve

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"provstream/internal/kafka"
)

// thing is a service that waits until it is told to stop.
type thing struct {
	Flags
	Size int `help:"A size." default:"1"`

	ran chan *Service
}

func (c *thing) Prepare() (func(context.Context, *Service) error, error) {
	var faults kafka.Faults
	c.Check(&faults)
	if c.Size < 1 {
		faults.Add(errors.New("--size: must be 1 or more"))
	}
	if err := faults.Err(); err != nil {
		return nil, err
	}
	return func(ctx context.Context, s *Service) error {
		c.ran <- s
		<-ctx.Done()
		return nil
	}, nil
}

func TestRun(t *testing.T) {
	for _, tc := range []struct {
		args   []string
		stdout string
		err    string
	}{
		{[]string{"--help"}, "PROVSTREAM_LISTEN_METRICS", ""},
		{[]string{"--print-config", "--size=7"}, `"Size": 7`, ""},
		{[]string{"--size=0"}, "", "--size: must be 1 or more"},
		{[]string{"--size=0", "--print-config"}, "", "--size"},
		{[]string{"--size=many", "--print-config=perhaps", "--log-format=xml"}, "", "--size: "},
		{[]string{"--size=many", "--print-config=perhaps", "--log-format=xml"}, "", "--print-config: "},
		{[]string{"--size=many", "--print-config=perhaps", "--log-format=xml"}, "", "--log-format: "},
		{[]string{"--nonesuch"}, "", "unknown flag --nonesuch"},
		{[]string{"--probe", "--listen-metrics=127.0.0.1:1"}, "", "probe:"},
	} {
		var stdout, stderr bytes.Buffer
		err := run(t.Context(), "thing", "Does nothing.", "127.0.0.1:0", new(thing), tc.args, &stdout, &stderr)
		if !strings.Contains(stdout.String(), tc.stdout) || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%v: %v\n%s", tc.args, err, stdout.String())
		}
	}
}

// The service runs beside its listener until the context ends.
func TestRunStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := &thing{ran: make(chan *Service, 1)}
	done := make(chan error, 1)
	var stdout, stderr bytes.Buffer
	go func() {
		done <- run(ctx, "thing", "Does nothing.", "127.0.0.1:0", c, []string{"--log-format=json"}, &stdout, &stderr)
	}()
	if s := <-c.ran; s.Name != "thing" || s.Registry == nil || s.Health == nil {
		t.Errorf("%+v", s)
	}
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("it does not stop")
	}
	if !strings.Contains(stderr.String(), `"msg":"stopped"`) {
		t.Error(stderr.String())
	}
}
