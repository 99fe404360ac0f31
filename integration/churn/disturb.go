package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"provstream/integration/processes"
	"provstream/internal/generate"
)

// instance is a process and who may touch it.
type instance struct {
	*processes.Process
	mu   sync.Mutex
	busy bool // something is being done to it
}

// take reserves the instance; false if it is taken.
func (i *instance) take() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.busy {
		return false
	}
	i.busy = true
	return true
}

func (i *instance) release() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.busy = false
}

// disturb feeds and disturbs until both the time and the kills are reached. When
// it returns every instance and every broker is up again.
func (t *trial) disturb(ctx context.Context) error {
	var instances []*instance
	for _, p := range t.deployment.Processes() {
		instances = append(instances, &instance{Process: p})
	}
	fed := make(chan error, 1)
	feedCtx, stopFeed := context.WithCancel(ctx)
	defer stopFeed()
	go func() { fed <- t.feed(feedCtx) }()

	counters := t.watchMetrics(ctx)
	defer counters.stop()
	time.Sleep(3 * time.Second) // a first assignment
	var background sync.WaitGroup
	end := time.Now().Add(t.Time)
	for ctx.Err() == nil && (time.Now().Before(end) || t.report.TotalKills < t.Kills) {
		t.one(ctx, instances, &background)
		for _, i := range instances {
			if i.take() {
				if err := i.Unexpected(); err != nil {
					t.report.violation("%v", err)
					t.log("%v", err)
					if err := i.Start(); err != nil {
						return err
					}
				}
				i.release()
			}
		}
		pause := time.Duration(t.rng.ExpFloat64() * float64(t.Pause))
		select {
		case <-ctx.Done():
		case err := <-fed:
			return errors.Join(errors.New("the feed ended"), err)
		case <-time.After(min(pause, 4*t.Pause)):
		}
	}
	t.log("%d kills, %d freezes, %d rolling restarts, %d broker restarts, %d leader moves; waiting for the last to come back",
		t.report.TotalKills, t.report.Freezes, t.report.RollingRestarts, t.report.BrokerRestarts, t.report.LeaderMoves)
	background.Wait()
	stopFeed()
	if err := <-fed; err != nil && ctx.Err() == nil {
		return err
	}
	t.log("%d records were sent", t.report.Sent)
	return ctx.Err()
}

// one does one thing to one thing.
func (t *trial) one(ctx context.Context, instances []*instance, background *sync.WaitGroup) {
	i := instances[t.rng.IntN(len(instances))]
	if t.plumbing != nil && t.rng.IntN(4) == 0 {
		t.network(i, background)
		return
	}
	dice := t.rng.IntN(100)
	switch {
	case dice < 70:
		t.kill(i, background)
	case dice < 80:
		t.freeze(i, background)
	case dice < 84:
		t.roll(ctx, instances)
	case dice < 92:
		t.moveLeader(ctx)
	default:
		t.broker(background)
	}
}

// kill sends SIGKILL to a service and starts it again: at once, soon, or after
// its session has timed out and its partitions have moved.
func (t *trial) kill(i *instance, background *sync.WaitGroup) {
	if !i.take() {
		return
	}
	away := time.Duration(t.rng.IntN(1500)) * time.Millisecond
	if t.rng.IntN(8) == 0 {
		away = sessionTimeout + 2*time.Second
	}
	i.Kill()
	t.report.Kills[i.Service]++
	t.report.TotalKills++
	t.log("kill %d: %s-%d, back in %v", t.report.TotalKills, i.Service, i.Instance, away)
	background.Go(func() {
		defer i.release()
		time.Sleep(away)
		if err := i.Start(); err != nil {
			t.log("%s-%d does not start: %v", i.Service, i.Instance, err)
		}
	})
}

// freeze stops a process beyond its session timeout, so that it comes back as a
// zombie whose partitions others own.
func (t *trial) freeze(i *instance, background *sync.WaitGroup) {
	if !i.take() {
		return
	}
	long := sessionTimeout + time.Duration(2+t.rng.IntN(6))*time.Second
	if err := i.Pause(); err != nil {
		i.release()
		return
	}
	t.report.Freezes++
	t.log("freeze %s-%d for %v", i.Service, i.Instance, long)
	background.Go(func() {
		defer i.release()
		time.Sleep(long)
		if err := i.Resume(); err != nil {
			t.log("%s-%d: %v", i.Service, i.Instance, err)
		}
	})
}

// roll restarts the instances of one service one after the other, gracefully.
func (t *trial) roll(ctx context.Context, instances []*instance) {
	service := processes.Services[t.rng.IntN(len(processes.Services))]
	t.report.RollingRestarts++
	t.log("rolling restart of %s", service)
	for _, i := range instances {
		if i.Service != service || !i.take() {
			continue
		}
		begin := time.Now()
		if err := i.Stop(); err != nil {
			t.report.violation("graceful stop: %v", err)
			t.log("%v", err)
		}
		took := time.Since(begin).Seconds()
		t.report.SlowestStop = max(t.report.SlowestStop, took)
		if took > 2 {
			t.log("%s-%d took %.1f s to stop", i.Service, i.Instance, took)
		}
		if err := i.Start(); err != nil {
			t.log("%s-%d does not start: %v", i.Service, i.Instance, err)
		}
		i.release()
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
}

// moveLeader makes another replica the preferred one of some partitions, and
// elects it.
func (t *trial) moveLeader(ctx context.Context) {
	adm := kadm.NewClient(t.client)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	all, err := adm.ListTopicsWithInternal(ctx)
	if err != nil {
		return
	}
	var assign kadm.AlterPartitionAssignmentsReq
	set := make(kadm.TopicsSet)
	for name, d := range all {
		for p, pd := range d.Partitions {
			if len(pd.Replicas) < 2 || t.rng.IntN(10) != 0 {
				continue
			}
			assign.Assign(name, p, append(pd.Replicas[1:len(pd.Replicas):len(pd.Replicas)], pd.Replicas[0]))
			set.Add(name, p)
		}
	}
	if len(set) == 0 {
		return
	}
	if _, err := adm.AlterPartitionAssignments(ctx, assign); err != nil {
		return
	}
	if _, err := adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, set); err != nil {
		return
	}
	t.report.LeaderMoves++
	t.log("leaders of some partitions moved")
}

// broker kills or restarts a broker of ours, one at a time: with two of three in
// sync an acknowledged record survives it.
func (t *trial) broker(background *sync.WaitGroup) {
	if t.cluster == nil || !t.brokerBusy.CompareAndSwap(false, true) {
		return
	}
	node, hard := fmt.Sprint(1+t.rng.IntN(3)), t.rng.IntN(2) == 0
	what := "stop-node"
	if hard {
		what = "kill-node"
		t.report.Kills["broker"]++
		t.report.TotalKills++
	} else {
		t.report.BrokerRestarts++
	}
	t.log("%s %s", what, node)
	away := time.Duration(t.rng.IntN(4000)) * time.Millisecond
	background.Go(func() {
		defer t.brokerBusy.Store(false)
		if _, err := t.cluster.Run(what, node); err != nil {
			t.log("%v", err)
		}
		time.Sleep(away)
		if _, err := t.cluster.Run("start-node", node); err != nil {
			t.log("%v", err)
			return
		}
		t.waitInSync()
	})
}

// waitInSync returns when every replica is in sync again, or after a minute.
func (t *trial) waitInSync() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	adm := kadm.NewClient(t.client)
	for ctx.Err() == nil {
		all, err := adm.ListTopicsWithInternal(ctx)
		behind := err != nil
		for _, d := range all {
			for _, p := range d.Partitions {
				behind = behind || len(p.ISR) < len(p.Replicas)
			}
		}
		if !behind {
			return
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// feed sends one generated fleet after the other until the context ends.
func (t *trial) feed(ctx context.Context) error {
	names := faults()
	for seed := t.Seed; ctx.Err() == nil; seed++ {
		cfg := generate.Config{Seed: seed, Sessions: 60, Tenants: []string{"northwind", "globex", ""}, Faults: names}
		err := t.deployment.Feed(ctx, cfg, t.Rate, func() { t.report.Sent++ })
		if err != nil && ctx.Err() == nil {
			// What was not acknowledged may be there or not; both are right,
			// the check goes by what is there.
			t.log("the feed starts anew: %v", err)
		}
	}
	return nil
}

// faults are those that need nothing but to be sent, without the one that would be
// most of the records.
func faults() []string {
	var names []string
	for _, f := range generate.Faults() {
		if f.Needs == "" && f.Name != "large_session" {
			names = append(names, f.Name)
		}
	}
	return names
}
