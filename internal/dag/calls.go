package dag

import (
	"provstream/internal/acs"
	"provstream/internal/segment"
)

// pairCalls is rule 2: a result → the call it names, an MCP answer → the last
// earlier request with the same method and inner id; then, in run order, a
// result that names none → the earliest earlier call of the same turn and tool
// that is still without a result.
func (g *Graph) pairCalls() {
	g.pairNamed()
	if g.Order.Seg.Unnamed {
		g.pairUnnamed()
	}
}

func (g *Graph) pairNamed() {
	o, b := g.Order, &g.b
	for _, r := range o.Refs[o.From:] {
		if !r.IsStep() || o.Standing[r.Step()] != segment.Counted {
			continue
		}
		i := r.Step()
		s := &o.Seg.Steps[i]
		switch {
		case s.Hook == acs.HookToolCallResult && s.RequestIDRef != segment.None:
			switch call := o.Resolve(s.RequestIDRef); {
			case call == segment.Earlier:
				g.callFound[i] = true
				g.add(g.node(r), g.causeOf(s.RequestIDRef), Produced)
			case call >= 0 && o.Seg.Steps[call].Hook == acs.HookToolCallRequest:
				g.pair(i, call)
			}
		case s.Hook == acs.HookWrapped:
			m := o.Seg.More(s)
			if m.MCPMethod == segment.None || m.InnerID == segment.None {
				continue
			}
			key := mcpKey{m.MCPMethod, m.InnerID}
			if !s.Answer {
				b.mcpRequest.Put(key, i)
			} else if request, ok := b.mcpRequest.Get(key); ok {
				g.pair(i, request)
			} else if o.Mem.HasOpenMCP(o.Seg.Syms.Bytes(m.MCPMethod), o.Seg.Syms.Bytes(m.InnerID)) {
				g.callFound[i] = true
				g.add(g.node(r), g.segmentNode, Produced)
			}
		}
	}
}

func (g *Graph) pairUnnamed() {
	o, b := g.Order, &g.b
	if !b.tracksCalls {
		o.Cross(segment.CrossedTracking)
	}
	for _, r := range o.Refs[o.From:] {
		if !r.IsStep() || o.Standing[r.Step()] != segment.Counted {
			continue
		}
		i := r.Step()
		s := &o.Seg.Steps[i]
		key := callKey{s.Turn, s.Tool}
		switch {
		case s.Hook == acs.HookToolCallRequest && g.resultOf.At(i) == 0:
			open, _ := b.calls.Get(key)
			b.calls.Put(key, append(open, i))
		case s.Hook == acs.HookToolCallResult && s.RequestIDRef == segment.None:
			open, _ := b.calls.Get(key)
			for len(open) > 0 && g.resultOf.At(open[0]) != 0 {
				open = open[1:] // a call of the base that a result has named since
			}
			if len(open) > 0 {
				g.pair(i, open[0])
				g.inferredCall[i] = true
				b.calls.Put(key, open[1:])
			}
		}
	}
}

func (g *Graph) pair(result, call int32) {
	if had := g.resultOf.At(call) - 1; had >= 0 && g.inferredCall[had] {
		g.Order.Cross(segment.CrossedCall) // that result belongs to another call
	}
	g.callFound[result] = true
	g.resultOf.Set(call, result+1)
	g.add(g.node(segment.StepRef(result)), g.node(segment.StepRef(call)), Produced)
}
