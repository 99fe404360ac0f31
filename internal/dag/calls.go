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
	unnamed := g.pairNamed()
	if unnamed {
		g.pairUnnamed()
	}
}

func (g *Graph) pairNamed() (unnamed bool) {
	o, b := g.Order, &g.b
	for _, r := range o.Refs {
		if !r.IsStep() || o.Standing[r.Step()] != segment.Counted {
			continue
		}
		i := r.Step()
		s := &o.Seg.Steps[i]
		switch {
		case s.Hook == acs.HookToolCallResult && s.RequestIDRef == segment.None:
			unnamed = true
		case s.Hook == acs.HookToolCallResult:
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
				putLast(&b.mcpRequest, key, i)
			} else if request, ok := b.mcpRequest[key]; ok {
				g.pair(i, request)
			} else if o.Mem.HasOpenMCP(o.Seg.Syms.Bytes(m.MCPMethod), o.Seg.Syms.Bytes(m.InnerID)) {
				g.callFound[i] = true
				g.add(g.node(r), g.segmentNode, Produced)
			}
		}
	}
	return unnamed
}

func (g *Graph) pairUnnamed() {
	o, b := g.Order, &g.b
	for _, r := range o.Refs {
		if !r.IsStep() || o.Standing[r.Step()] != segment.Counted {
			continue
		}
		i := r.Step()
		s := &o.Seg.Steps[i]
		key := callKey{s.Turn, s.Tool}
		switch {
		case s.Hook == acs.HookToolCallRequest && g.resultOf[i] == 0:
			if b.calls == nil {
				b.calls = make(map[callKey][]int32)
			}
			b.calls[key] = append(b.calls[key], i)
		case s.Hook == acs.HookToolCallResult && s.RequestIDRef == segment.None:
			if open := b.calls[key]; len(open) > 0 {
				g.pair(i, open[0])
				g.inferredCall[i] = true
				b.calls[key] = open[1:]
			}
		}
	}
}

func (g *Graph) pair(result, call int32) {
	g.callFound[result] = true
	g.resultOf[call] = result + 1
	g.add(g.node(segment.StepRef(result)), g.node(segment.StepRef(call)), Produced)
}
