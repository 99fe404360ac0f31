package main

import (
	"context"
	"fmt"
	"time"

	"provstream/internal/fleet"
	"provstream/internal/kafka"
	"provstream/internal/load"
)

type replayCmd struct {
	kafka.Flags  `embed:""`
	File         string  `arg:"" help:"Fleet file (JSON Lines, gzip is recognised), or - for stdin."`
	Rate         float64 `help:"Records a second; 0 is as fast as the cluster takes them." default:"0"`
	Copies       int     `help:"Make N fleets out of the file: every copy but the first gets fresh session, request and turn ids." default:"1" placeholder:"N"`
	Parallel     int     `help:"Copies that run side by side; the others follow them in time." default:"10"`
	Salt         string  `help:"Give the first copy fresh ids too; another salt gives other ids."`
	ShiftToNow   bool    `help:"Move Kafka and event times together, so that the last record stands at the present."`
	Forever      bool    `help:"Send the file again and again, each time with fresh ids and moved to the present, until stopped."`
	CreateTopics bool    `help:"Create hook topics that the file names and the cluster lacks."`
	Compression  string  `help:"Of the batches: none, snappy, lz4 or zstd." default:"lz4"`
}

func (c *replayCmd) Help() string {
	return example("Sends the records of a fleet file to the hook topics. A record's Kafka timestamp is its time_ms, where the topic has CreateTime.",
		"provctl replay fleet.jsonl.gz --copies 10 --shift-to-now",
		"provctl generate | provctl replay - --rate 500 --create-topics")
}

func (c *replayCmd) Run(g *globals) error {
	if c.Copies < 1 || c.Parallel < 1 || c.Rate < 0 {
		return fmt.Errorf("--copies and --parallel: want at least 1; --rate: want 0 or more")
	}
	s, err := load.NewSender(c.Flags, load.Options{CreateTopics: c.CreateTopics, Rate: c.Rate, Compression: c.Compression})
	if err != nil {
		return err
	}
	defer s.Close()
	copies := fleet.Copies{N: c.Copies, Parallel: c.Parallel, Salt: c.Salt}
	if c.ShiftToNow {
		copies.LastMs = time.Now().UnixMilli()
	}
	if c.Forever {
		return c.forever(g, s)
	}
	begin := time.Now()
	sum, err := g.send(g.ctx, s, copies, fleet.FileSource(c.File, g.stdin))
	if err != nil {
		return err
	}
	seconds := time.Since(begin).Seconds()
	if g.json {
		return g.printJSON(map[string]any{
			"records": sum.Records, "first_ms": sum.FirstMs, "last_ms": sum.LastMs, "copies": c.Copies,
			"seconds": seconds, "records_per_s": float64(sum.Records) / seconds,
		})
	}
	g.printf("%d records sent in %.1f s (%.0f/s), timestamps %s to %s\n", sum.Records, seconds, float64(sum.Records)/seconds,
		instant(sum.FirstMs), instant(sum.LastMs))
	return nil
}

// forever sends the file until the command is stopped.
func (c *replayCmd) forever(g *globals, s *load.Sender) error {
	if c.File == "-" {
		return fmt.Errorf("--forever: a file is read again and again, and stdin only once")
	}
	for g.ctx.Err() == nil {
		now := time.Now()
		copies := fleet.Copies{N: c.Copies, Parallel: c.Parallel, Salt: fmt.Sprintf("%s/%d", c.Salt, now.UnixNano()), LastMs: now.UnixMilli()}
		if _, err := g.send(g.ctx, s, copies, fleet.FileSource(c.File, nil)); err != nil && g.ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// send hands all copies of a fleet to a sender, with progress, and waits until
// the cluster has acknowledged them.
func (g *globals) send(ctx context.Context, s *load.Sender, copies fleet.Copies, src fleet.Source) (fleet.Span, error) {
	var span fleet.Span
	next := time.Now()
	err := copies.Each(src, func(r *fleet.Record) error {
		span.Add(r)
		if now := time.Now(); now.After(next) {
			g.progress("sending: %d records, %d acknowledged", span.Records, s.Acked())
			next = now.Add(200 * time.Millisecond)
		}
		return s.Send(ctx, r)
	})
	if err == nil {
		err = s.Flush(ctx)
	}
	g.progressDone()
	return span, err
}
