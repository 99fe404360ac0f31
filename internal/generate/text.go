package generate

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// The words of the synthetic fleet: an operations desk that moves parcels. They
// mean nothing; what matters is that sizes are those of real dialogues.
var (
	subjects = strings.Fields("parcel shipment pallet courier depot invoice customs refund driver manifest container " +
		"label route pickup schedule claim warehouse consignee tariff insurance")
	verbs = strings.Fields("check move hold release reroute inspect refund deliver cancel confirm book weigh scan audit " +
		"update escalate")
	fillers = strings.Fields("please today before noon because the customer asked again and nobody answered while the " +
		"system shows a different status for this one than for the rest which left yesterday from the northern hub " +
		"so we need it sorted without another delay if that is at all possible given what the policy says about " +
		"late changes and fragile goods above the declared value")
	tools   = []string{"get_parcel", "list_parcels", "search_routes", "quote_price", "update_address", "book_pickup", "issue_refund", "shell"}
	stores  = []string{"customer-notes", "desk-memory"}
	sources = []string{"policies", "tariffs", "incident-log"}
)

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

// sentence is about n bytes of text.
func sentence(r *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s the %s", pick(r, verbs), pick(r, subjects))
		for range 3 + r.IntN(9) {
			b.WriteByte(' ')
			b.WriteString(pick(r, fillers))
		}
		b.WriteString([]string{".", ".", "?", ";", " — “as agreed”."}[r.IntN(5)])
	}
	return b.String()
}

// document is about n bytes of text in paragraphs.
func document(r *rand.Rand, n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s handling\n", pick(r, subjects))
	for b.Len() < n {
		fmt.Fprintf(&b, "\n## %s %s\n\n%s\n", pick(r, verbs), pick(r, subjects), sentence(r, 200+r.IntN(400)))
	}
	return b.String()
}

// toolOutput is about n bytes of JSON, as tools answer: often a string that
// holds JSON, sometimes the JSON itself.
func toolOutput(r *rand.Rand, n int) any {
	var rows []object
	for size := 0; size < n; size += 150 {
		rows = append(rows, obj("id", fmt.Sprintf("PX%06d", r.IntN(1e6)), "item", pick(r, subjects), "status", pick(r, verbs),
			"weight_kg", float64(r.IntN(4000))/100, "fragile", r.IntN(4) == 0, "hub", pick(r, fillers), "price", r.IntN(90000)))
	}
	if r.IntN(3) == 0 {
		return rows
	}
	return string(appendValue(nil, rows))
}
