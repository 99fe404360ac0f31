package window

// words are strings that turn after turn repeats: agents, outcomes, triggers.
// Each is kept once, not once a turn.
type words map[string]string

// mostWords bounds them; a producer may send any number.
const mostWords = 1024

func (w words) of(text []byte) string {
	if len(text) == 0 {
		return ""
	}
	if s, ok := w[string(text)]; ok {
		return s
	}
	if len(w) >= mostWords {
		clear(w)
	}
	s := string(text)
	w[s] = s
	return s
}
