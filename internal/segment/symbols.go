package segment

import "hash/maphash"

// Sym stands for a string of one segment. Equal strings have equal Syms, so
// the rules compare numbers and use them as indexes.
type Sym uint32

// None is the absent string. The empty string, which is legal as a
// provenance_id and as an item of a list, has a Sym of its own.
const None Sym = 0

// seed makes slot positions unpredictable to a producer. It shows in no output.
var seed = maphash.MakeSeed()

// Symbols is an append-only table of strings in one block of bytes: about 12
// bytes a string beside its text.
type Symbols struct {
	text  []byte
	ends  []uint32 // ends[i] is the end of symbol i+1 in text
	slots []uint32 // open addressing, holds Syms
	store *Storage // nil: none
}

// Len is one more than the largest Sym in use: the length of an array that is
// indexed by Sym.
func (t *Symbols) Len() int { return len(t.ends) + 1 }

// Bytes returns the text of s. It must not be changed.
func (t *Symbols) Bytes(s Sym) []byte {
	if s == None {
		return nil
	}
	start := uint32(0)
	if s > 1 {
		start = t.ends[s-2]
	}
	return t.text[start:t.ends[s-1]:t.ends[s-1]]
}

// String returns the text of s as a new string.
func (t *Symbols) String(s Sym) string { return string(t.Bytes(s)) }

// Lookup returns the Sym of text, None when it is not in the table.
func (t *Symbols) Lookup(text string) Sym {
	if len(t.slots) == 0 {
		return None
	}
	mask := uint64(len(t.slots) - 1)
	for i := maphash.String(seed, text) & mask; ; i = (i + 1) & mask {
		s := Sym(t.slots[i])
		if s == None || string(t.Bytes(s)) == text {
			return s
		}
	}
}

// Intern returns the Sym of text and adds it when it is new.
func (t *Symbols) Intern(text string) Sym {
	if (len(t.ends)+1)*4 > len(t.slots)*3 {
		t.grow()
	}
	mask := uint64(len(t.slots) - 1)
	i := maphash.String(seed, text) & mask
	for ; t.slots[i] != 0; i = (i + 1) & mask {
		if s := Sym(t.slots[i]); string(t.Bytes(s)) == text {
			return s
		}
	}
	store := t.store.orNone()
	if len(text) > cap(t.text)-len(t.text) {
		// The text so far is not given back before Release: summaries hold parts of it.
		t.text = append(store.text.take(store, max(len(t.text)+len(text), cap(t.text)+1, min(2*cap(t.text), 1024))), t.text...)
	}
	t.text = append(t.text, text...)
	t.ends = append(store.words.room(store, t.ends, 1), uint32(len(t.text)))
	s := Sym(len(t.ends))
	t.slots[i] = uint32(s)
	return s
}

// optional interns text, or returns None for an empty string.
func (t *Symbols) optional(text string) Sym {
	if text == "" {
		return None
	}
	return t.Intern(text)
}

func (t *Symbols) grow() {
	size := 2 * len(t.slots)
	if size < 32 {
		size = 32
	}
	store := t.store.orNone()
	store.words.give(store, t.slots)
	t.slots = store.words.table(store, size)
	mask := uint64(size - 1)
	for s := Sym(1); int(s) <= len(t.ends); s++ {
		i := maphash.Bytes(seed, t.Bytes(s)) & mask
		for t.slots[i] != 0 {
			i = (i + 1) & mask
		}
		t.slots[i] = uint32(s)
	}
}
