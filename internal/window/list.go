package window

// links is where an element stands in a list.
type links[T any] struct {
	prev, next *T
	listed     bool
}

// list is a doubly linked list through the elements themselves, oldest first.
type list[T any] struct {
	first, last *T
	of          func(*T) *links[T]
}

// push puts an element that is in no list behind all others.
func (l *list[T]) push(e *T) {
	*l.of(e) = links[T]{prev: l.last, listed: true}
	if l.last != nil {
		l.of(l.last).next = e
	} else {
		l.first = e
	}
	l.last = e
}

// remove takes an element out; one that is not in the list may be named.
func (l *list[T]) remove(e *T) {
	at := l.of(e)
	if !at.listed {
		return
	}
	if at.prev != nil {
		l.of(at.prev).next = at.next
	} else {
		l.first = at.next
	}
	if at.next != nil {
		l.of(at.next).prev = at.prev
	} else {
		l.last = at.prev
	}
	*at = links[T]{}
}

// renew puts an element behind all others, wherever it stands.
func (l *list[T]) renew(e *T) {
	if l.last != e {
		l.remove(e)
		l.push(e)
	}
}
