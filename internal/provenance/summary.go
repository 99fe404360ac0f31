package provenance

import (
	"bytes"
	"strconv"

	"provstream/internal/acs"
	"provstream/internal/jcs"
)

// Summary is an ACS ProvenanceSummary (provenance-summary.json) of a set of
// counted steps. Its zero value is the summary of none.
type Summary struct {
	EntryCount int
	ByOrigin   [acs.OriginCount]int
	// Earliest holds step_ids, set where ByOrigin is not 0. They may be the bytes
	// of a segment: see Own.
	Earliest [acs.OriginCount][]byte
	MaxDepth int32
}

// Own copies the step_ids, for a summary that outlives its segment.
func (s *Summary) Own() {
	for o := range s.Earliest {
		s.Earliest[o] = bytes.Clone(s.Earliest[o])
	}
}

// SameObjects reports whether two summaries are equal but for EntryCount.
func (s *Summary) SameObjects(t *Summary) bool {
	for o := range s.Earliest {
		if !bytes.Equal(s.Earliest[o], t.Earliest[o]) {
			return false
		}
	}
	return s.ByOrigin == t.ByOrigin && s.MaxDepth == t.MaxDepth
}

// Merge adds the summary of steps that stand later in run order. Merging in
// run order gives the summary of the union.
func (s *Summary) Merge(later *Summary) {
	s.EntryCount += later.EntryCount
	for o := range s.ByOrigin {
		if s.ByOrigin[o] == 0 && later.ByOrigin[o] > 0 {
			s.Earliest[o] = later.Earliest[o]
		}
		s.ByOrigin[o] += later.ByOrigin[o]
	}
	s.MaxDepth = max(s.MaxDepth, later.MaxDepth)
}

// AppendJCS appends the summary as JCS. All members are always present;
// origins_seen is in the order of the enum.
func (s *Summary) AppendJCS(b []byte) []byte {
	b = append(b, `{"earliest_step_id_by_origin":{`...)
	b = s.appendByOrigin(b, func(b []byte, o acs.Origin) []byte { return jcs.AppendString(b, s.Earliest[o]) })
	b = append(b, `},"entry_count":`...)
	b = strconv.AppendInt(b, int64(s.EntryCount), 10)
	b = append(b, `,"entry_count_by_origin":{`...)
	b = s.appendByOrigin(b, func(b []byte, o acs.Origin) []byte { return strconv.AppendInt(b, int64(s.ByOrigin[o]), 10) })
	b = append(b, `},"max_lineage_depth":`...)
	b = strconv.AppendInt(b, int64(s.MaxDepth), 10)
	b = append(b, `,"origins_seen":[`...)
	first := true
	for o := acs.OriginUserInput; o < acs.OriginCount; o++ {
		if s.ByOrigin[o] == 0 {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = jcs.AppendString(b, o.String())
	}
	return append(b, `]}`...)
}

// originsByName is the enum in the order of member names.
var originsByName = [...]acs.Origin{
	acs.OriginA2AInbound, acs.OriginAgentGenerated, acs.OriginExternal, acs.OriginRetrieved, acs.OriginSystem,
	acs.OriginToolOutput, acs.OriginUserInput,
}

func (s *Summary) appendByOrigin(b []byte, value func([]byte, acs.Origin) []byte) []byte {
	first := true
	for _, o := range originsByName {
		if s.ByOrigin[o] == 0 {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(jcs.AppendString(b, o.String()), ':')
		b = value(b, o)
	}
	return b
}
