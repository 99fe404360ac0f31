package reconcile

// account finds the one place of every envelope that must stand on prov.steps.
func (o *oracle) account() {
	r := &o.report
	placed, unsigned := map[[32]byte]bool{}, map[[32]byte]bool{}
	for i := range o.elements {
		if o.elements[i].nodes > 0 {
			placed[o.elements[i].copyOf] = true
		}
		if o.toSign[o.elements[i].at] {
			unsigned[o.elements[i].copyOf] = true
		}
	}
	for i := range o.elements {
		e := &o.elements[i]
		switch {
		case e.seen == 0 && !o.expiredSteps():
			o.problem(Missing, e.at, "there is no step of it on prov.steps")
		case e.handshake:
			r.Dropped++
			if e.nodes > 0 {
				o.problem(Wrong, e.at, "a handshake is a node")
			}
		case e.nodes > 0:
			r.Nodes++
		case placed[e.copyOf]:
			r.Copies++
		case o.opened[e.copyOf]:
			r.Open++
		case unsigned[e.copyOf]:
			r.Unsigned++
		case !o.opt.Lineage || o.expiredSteps():
			r.Open++ // nobody recomputed which runs are open
		default:
			o.problem(Missing, e.at, "it is neither a node of a signed DAG, nor a copy of one, nor in an open run")
		}
	}
}

// expiredSteps: prov.steps no longer begins at its beginning, so what is not
// there may have been there.
func (o *oracle) expiredSteps() bool {
	if len(o.partitions["prov.steps"]) == 0 {
		return true
	}
	for _, p := range o.partitions["prov.steps"] {
		if p.Start > 0 {
			return true
		}
	}
	return false
}
