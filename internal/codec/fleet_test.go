package codec

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// fleetFile is the file of real runs that lies beside the module, "" where it
// is absent.
func fleetFile() string {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			file := filepath.Join(dir, "..", "shared", "fleet", "airline.jsonl.gz")
			if _, err := os.Stat(file); err == nil {
				return file
			}
			return ""
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			break
		}
		dir = parent
	}
	return ""
}

// fleetRecords reads the fleet; it skips aloud where the file is absent.
func fleetRecords(t testing.TB) []Record {
	t.Helper()
	name := fleetFile()
	if name == "" {
		t.Skip("SKIPPED: ../shared/fleet/airline.jsonl.gz is not there")
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var records []Record
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var line struct {
			Topic   string            `json:"topic"`
			Key     string            `json:"key"`
			Headers map[string]string `json:"headers"`
			Time    int64             `json:"time_ms"`
			Value   json.RawMessage   `json:"value"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		rec := Record{
			Topic: line.Topic, Offset: int64(len(records)), Timestamp: line.Time,
			Key: []byte(line.Key), Value: bytes.Clone(line.Value),
		}
		for k, v := range line.Headers {
			rec.Headers = append(rec.Headers, Header{Key: k, Value: []byte(v)})
		}
		records = append(records, rec)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return records
}

func newReader(t testing.TB, cfg Config) *Reader {
	t.Helper()
	r, err := NewReader(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestFleet(t *testing.T) {
	r := newReader(t, Config{})
	steps := 0
	for _, rec := range fleetRecords(t) {
		result := r.Read(&rec, rec.Timestamp, func(_, _ []byte) {})
		if result.DeadLetter != nil {
			t.Fatalf("offset %d: %+v", rec.Offset, *result.DeadLetter)
		}
		steps += result.Steps
	}
	if steps != 4353 {
		t.Errorf("%d steps and decisions, want 4353", steps)
	}
}
