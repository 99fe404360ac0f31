package codec

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"
)

func TestZZDump(t *testing.T) {
	in, err := os.Open(os.Getenv("ZZIN"))
	if err != nil {
		t.Skip()
	}
	out, _ := os.Create(os.Getenv("ZZOUT"))
	w := bufio.NewWriter(out)
	m := map[string]string{"acs.hooks.turn-end": "acme", "acs.hooks.user-message": "acme"}
	rs := []*Reader{newReader(t, Config{}), newReader(t, Config{TenantTopics: m, DefaultTenant: "none", MaxValueBytes: 20000, UnknownHooksReject: true, ProvenanceRequired: true})}
	sc := bufio.NewScanner(in)
	sc.Buffer(nil, 1<<24)
	for sc.Scan() {
		var l struct {
			Topic, Key string
			Headers    [][2]string
			Value      []byte
			Cfg        int
		}
		if err := json.Unmarshal(sc.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		rec := &Record{Topic: l.Topic, Partition: 2, Offset: 7, Timestamp: 1789812000000, Key: []byte(l.Key), Value: l.Value}
		for _, h := range l.Headers {
			rec.Headers = append(rec.Headers, Header{h[0], []byte(h[1])})
		}
		steps := []string{}
		res := rs[l.Cfg].Read(rec, 1789812000000+5000, func(_, v []byte) { steps = append(steps, string(v)) })
		var dead []string
		if d := res.DeadLetter; d != nil {
			dead = []string{d.Kind, d.Pointer, d.Keyword, d.Index}
		}
		json.NewEncoder(w).Encode(map[string]any{"steps": steps, "dropped": res.Dropped, "dead": dead})
	}
	w.Flush()
}
