package main

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"provstream/integration/processes"
)

// The network between the services and the brokers, as a toxic one. Every
// instance has a listener of its own on every broker, which advertises the
// address of a link in this process: so the instance's whole traffic with that
// broker, and nothing else, goes through it.
//
// Toxiproxy does the same and more, but the version that Go modules can have
// (v2.5.0 of 2022) brings seven modules that nothing else here needs, among them
// an HTTP router and a logger; what the trial wants of it are these lines.

// link forwards the connections of one instance to one broker.
type link struct {
	instance string // ingest-0
	node     int    // of the broker, from 1
	listener net.Listener
	upstream string

	mu      sync.Mutex
	changed chan struct{} // closed at a change of what follows
	toxic   toxic
	conns   map[*net.TCPConn]bool
}

// toxic is what is wrong with a link. The zero value is a good network.
type toxic struct {
	latency   time.Duration // in each direction
	bandwidth int           // bytes a second in each direction; 0 is no limit
	partition bool          // nothing passes, and nothing is refused
}

// newLink listens on a free port of loopback.
func newLink(instance string, node int, upstream string) (*link, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	k := &link{
		instance: instance, node: node, listener: l, upstream: upstream,
		changed: make(chan struct{}), conns: make(map[*net.TCPConn]bool),
	}
	go k.accept()
	return k, nil
}

func (k *link) address() string { return k.listener.Addr().String() }

// set replaces what is wrong with the link.
func (k *link) set(t toxic) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.toxic = t
	close(k.changed)
	k.changed = make(chan struct{})
}

func (k *link) now() (toxic, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.toxic, k.changed
}

// cut resets all connections; what was on its way is lost.
func (k *link) cut() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := len(k.conns) / 2 // both ends of each are listed
	for c := range k.conns {
		_ = c.SetLinger(0) // a reset, not an end
		_ = c.Close()
	}
	return n
}

func (k *link) close() {
	_ = k.listener.Close()
	k.cut()
}

func (k *link) accept() {
	for {
		c, err := k.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		go k.serve(c.(*net.TCPConn))
	}
}

// serve carries one connection, until either side ends it. A partition also
// holds up connections that are being made.
func (k *link) serve(down *net.TCPConn) {
	for t, changed := k.now(); t.partition; t, changed = k.now() {
		<-changed
	}
	c, err := net.DialTimeout("tcp", k.upstream, 5*time.Second)
	if err != nil {
		_ = down.SetLinger(0) // as near as one gets to a refusal
		_ = down.Close()
		return
	}
	up := c.(*net.TCPConn)
	k.mu.Lock()
	k.conns[down], k.conns[up] = true, true
	k.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() { k.pump(up, down) })
	wg.Go(func() { k.pump(down, up) })
	wg.Wait()
	k.mu.Lock()
	delete(k.conns, down)
	delete(k.conns, up)
	k.mu.Unlock()
}

// chunk is what one read brought, and when.
type chunk struct {
	bytes []byte
	at    time.Time
}

// pump copies one direction, late and slowly where the link is toxic. The queue
// lets bytes be on their way together: latency does not divide the throughput.
func (k *link) pump(to, from *net.TCPConn) {
	queue := make(chan chunk, 256)
	go func() {
		defer close(queue)
		for {
			b := make([]byte, 16<<10)
			n, err := from.Read(b)
			if n > 0 {
				queue <- chunk{b[:n], time.Now()}
			}
			if err != nil {
				return
			}
		}
	}()
	for c := range queue {
		k.delay(c)
		if _, err := to.Write(c.bytes); err != nil {
			break
		}
	}
	_ = to.Close()
	_ = from.Close()
	for range queue { // the reader ends with its connection
	}
}

// delay waits for the moment at which a chunk arrives.
func (k *link) delay(c chunk) {
	for {
		t, changed := k.now()
		if t.partition {
			<-changed
			continue
		}
		wait := time.Until(c.at.Add(t.latency))
		if t.bandwidth > 0 {
			wait = max(wait, time.Duration(len(c.bytes))*time.Second/time.Duration(t.bandwidth))
		}
		if wait <= 0 {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			return
		case <-changed:
			timer.Stop()
		}
	}
}

// plumbing is all links: those of one instance behind each other, by broker.
type plumbing struct{ links []*link }

// listenersBeside is how far behind a broker's port its listeners for the links
// begin: behind the controllers'.
const listenersBeside = 20

// lay makes the links before the brokers start; port is the first broker's.
func lay(instances, nodes, port int) (*plumbing, error) {
	p := &plumbing{}
	for _, service := range processes.Services {
		for i := range instances {
			for node := 1; node <= nodes; node++ {
				upstream := fmt.Sprintf("127.0.0.1:%d", port+listenersBeside+len(p.links))
				k, err := newLink(fmt.Sprintf("%s-%d", service, i), node, upstream)
				if err != nil {
					return nil, err
				}
				p.links = append(p.links, k)
			}
		}
	}
	return p, nil
}

// settings are the lines of a broker's server.properties that make it listen
// behind its links.
func (p *plumbing) settings(port, node int) []string {
	own := fmt.Sprintf("PLAINTEXT://127.0.0.1:%d", port+node-1)
	listeners := []string{own, fmt.Sprintf("CONTROLLER://127.0.0.1:%d", port+10+node-1)}
	advertised := []string{own}
	protocols := []string{"PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT"}
	for _, k := range p.links {
		if k.node != node {
			continue
		}
		name := strings.ToUpper(strings.ReplaceAll(k.instance, "-", ""))
		listeners = append(listeners, name+"://"+k.upstream)
		advertised = append(advertised, name+"://"+k.address())
		protocols = append(protocols, name+":PLAINTEXT")
	}
	return []string{
		"listeners=" + strings.Join(listeners, ","), "advertised.listeners=" + strings.Join(advertised, ","),
		"listener.security.protocol.map=" + strings.Join(protocols, ","), "num.network.threads=1", // for each listener
	}
}

// brokers are the bootstrap addresses of an instance.
func (p *plumbing) brokers(service string, instance int) string {
	var list []string
	for _, k := range p.of(fmt.Sprintf("%s-%d", service, instance)) {
		list = append(list, k.address())
	}
	return strings.Join(list, ",")
}

func (p *plumbing) of(instance string) []*link {
	var links []*link
	for _, k := range p.links {
		if k.instance == instance {
			links = append(links, k)
		}
	}
	return links
}

func (p *plumbing) close() {
	for _, k := range p.links {
		k.close()
	}
}

// network makes the network of one instance bad for a while.
func (t *trial) network(i *instance, background *sync.WaitGroup) {
	name := fmt.Sprintf("%s-%d", i.Service, i.Instance)
	links := t.plumbing.of(name)
	one := links[t.rng.IntN(len(links))]
	long := time.Duration(2000+t.rng.IntN(8000)) * time.Millisecond
	var bad toxic
	var kind string
	switch t.rng.IntN(4) {
	case 0:
		kind, bad.latency = "latency", time.Duration(50+t.rng.IntN(400))*time.Millisecond
	case 1:
		kind, bad.bandwidth = "bandwidth", 20_000+t.rng.IntN(200_000)
	case 2:
		kind, bad.partition, links = "partition", true, []*link{one}
	default:
		n := 0
		for _, k := range links {
			n += k.cut()
		}
		t.report.Network["cut"]++
		t.log("%d connections of %s cut", n, name)
		return
	}
	t.report.Network[kind]++
	t.log("%s of %s for %v: %+v", kind, name, long, bad)
	for _, k := range links {
		k.set(bad)
	}
	background.Go(func() {
		time.Sleep(long)
		for _, k := range links {
			k.set(toxic{})
		}
	})
}
