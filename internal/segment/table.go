package segment

// Table is a slice, indexed by Sym or by a record's index, whose state at one
// moment can be kept and gone back to: each change since Keep is logged, and
// Rewind takes the changes back, last one first. Before Keep nothing is logged.
type Table[K ~int32 | ~uint32, T any] struct {
	v      []T
	log    []change[K, T]
	logged bool
}

type change[K, T any] struct {
	at  K
	old T
}

// Reset makes a table of n zero elements with nothing kept.
func (t *Table[K, T]) Reset(n int) {
	t.v, t.log, t.logged = Resize(t.v, n), t.log[:0], false
}

// Grow makes room for n elements; the new ones are zero.
func (t *Table[K, T]) Grow(n int) { t.v = extend(t.v, n) }

// At returns an element.
func (t *Table[K, T]) At(i K) T { return t.v[i] }

// Set changes an element.
func (t *Table[K, T]) Set(i K, v T) { *t.Ref(i) = v }

// Ref returns an element that is about to be changed.
func (t *Table[K, T]) Ref(i K) *T {
	if t.logged {
		t.log = append(t.log, change[K, T]{i, t.v[i]})
	}
	return &t.v[i]
}

// Keep keeps the present state.
func (t *Table[K, T]) Keep() { t.log, t.logged = t.log[:0], true }

// Rewind goes back to the state that was kept.
func (t *Table[K, T]) Rewind() {
	for i := len(t.log) - 1; i >= 0; i-- {
		t.v[t.log[i].at] = t.log[i].old
	}
	t.log = t.log[:0]
}

// Dict is a map that can be kept and rewound like a Table.
type Dict[K comparable, V any] struct {
	m      map[K]V
	log    []dictChange[K, V]
	logged bool
}

type dictChange[K comparable, V any] struct {
	key K
	old V
	had bool
}

// keptEntries bounds the storage that a Dict keeps from segment to segment.
const keptEntries = 1 << 10

// Reset empties the map.
func (d *Dict[K, V]) Reset() {
	if len(d.m) > keptEntries {
		d.m, d.log = nil, nil
	}
	clear(d.m)
	clear(d.log)
	d.log, d.logged = d.log[:0], false
}

// Get returns the value of a key.
func (d *Dict[K, V]) Get(k K) (V, bool) {
	v, ok := d.m[k]
	return v, ok
}

// Put sets the value of a key.
func (d *Dict[K, V]) Put(k K, v V) {
	if d.m == nil {
		d.m = make(map[K]V)
	}
	if d.logged {
		old, had := d.m[k]
		d.log = append(d.log, dictChange[K, V]{k, old, had})
	}
	d.m[k] = v
}

// PutFirst sets the value of a key that has none.
func (d *Dict[K, V]) PutFirst(k K, v V) {
	if _, ok := d.m[k]; !ok {
		d.Put(k, v)
	}
}

// Keep keeps the present state.
func (d *Dict[K, V]) Keep() { d.log, d.logged = d.log[:0], true }

// Rewind goes back to the state that was kept.
func (d *Dict[K, V]) Rewind() {
	for i := len(d.log) - 1; i >= 0; i-- {
		if c := &d.log[i]; c.had {
			d.m[c.key] = c.old
		} else {
			delete(d.m, c.key)
		}
	}
	d.log = d.log[:0]
}
