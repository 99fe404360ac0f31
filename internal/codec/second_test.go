package codec

import (
	"bufio"
	"encoding/json"
	"os"
	"reflect"
	"testing"
)

// TestSecondReader holds the reader to what a second one, written in Python
// from the rules alone (testdata/second_reader.py), makes of several hundred
// records: valid and broken ones, batches, decisions, under two configurations.
func TestSecondReader(t *testing.T) {
	f, err := os.Open("testdata/second-reader.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cfgs := []Config{{}, {
		TenantTopics:  map[string]string{"acs.hooks.turn-end": "acme", "acs.hooks.user-message": "acme"},
		DefaultTenant: "none", MaxValueBytes: 20000, UnknownHooksReject: true, ProvenanceRequired: true,
	}}
	var readers [2][]*Reader
	for i, cfg := range cfgs {
		readers[i] = []*Reader{newReader(t, cfg), plainReader(t, cfg)}
	}
	type outcome struct {
		Steps   []string
		Dropped int
		Dead    []string // kind, pointer, keyword, index
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var line struct {
			Topic, Key string
			Headers    [][2]string
			Value      []byte
			Config     int
			Want       outcome
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		rec := &Record{Topic: line.Topic, Partition: 2, Offset: 7, Timestamp: testTime, Key: []byte(line.Key), Value: line.Value}
		for _, h := range line.Headers {
			rec.Headers = append(rec.Headers, Header{h[0], []byte(h[1])})
		}
		for _, r := range readers[line.Config] {
			got := outcome{Steps: []string{}}
			result := r.Read(rec, testTime+1000, func(_, value []byte) { got.Steps = append(got.Steps, string(value)) })
			got.Dropped = result.Dropped
			if d := result.DeadLetter; d != nil {
				got.Dead = []string{d.Kind, d.Pointer, d.Keyword, d.Index}
			}
			if !reflect.DeepEqual(got, line.Want) {
				t.Errorf("line %d: %s\ngot  %+v\nwant %+v", n, line.Value, got, line.Want)
			}
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}
