package topics

// ACL is one right that a principal needs: an operation on a resource, by its
// whole name or by a prefix of names.
type ACL struct {
	Resource  string `json:"resource"` // topic, group or transactional-id
	Name      string `json:"name"`     // with the deployment's prefix
	Prefixed  bool   `json:"prefixed"` // Name is a prefix of names
	Operation string `json:"operation"`
	// Why the right is needed.
	Why string `json:"why"`
}

// Roles are the principals that ACLs knows, in the order of the data flow.
var Roles = []string{"agent", "ingest", "aggregator", "signer", "reader", "auditor", "operator", "canary"}

// ACLs is the least that a role needs on a cluster with authorization, in a
// deployment of a prefix. Kafka's Read and Write imply Describe. Only ingest
// writes steps, coverage and dead letters (the aggregator adds its ticks to the
// steps), only the aggregator runs and summaries, only the signer DAGs and
// checkpoints: who may write where is part of what the evidence rests on.
//
// Groups and transactional ids are the services' defaults.
func ACLs(role, prefix string) []ACL {
	a := acls{prefix: prefix}
	describe := func() { a.add("topic", "prov.", true, "Describe", "the topics must exist with one partition count") }
	loop := func(service string) {
		a.add("group", "provstream-"+service, false, "Read", "its consumer group")
		a.add("transactional-id", "provstream-"+service+"-", true, "Write", "its transactions, one id an instance")
	}
	hooks := func(operation, why string) {
		a.add("topic", HookPrefix, true, operation, why)
		a.add("topic", Decisions, false, operation, why)
	}
	topics := func(operation, why string, names ...string) {
		for _, n := range names {
			a.add("topic", n, false, operation, why)
		}
	}
	switch role {
	case "agent":
		hooks("Write", "publishes envelopes and decisions")
	case "ingest":
		hooks("Read", "reads envelopes and decisions")
		describe()
		topics("Write", "its output", Steps, DeadLetter, Coverage)
		loop("ingest")
	case "aggregator":
		describe()
		topics("Read", "its input and its state", Steps, AggregatorState)
		topics("Write", "its output, its ticks and its state", Steps, Turns, Sessions, Runs, AggregatorState)
		hooks("Describe", "the clock: ends of the hook partitions")
		a.add("group", "provstream-ingest", false, "Describe", "the clock: what ingest has committed")
		loop("aggregator")
	case "signer":
		describe()
		topics("Read", "its input and its last head", Runs, Coverage, Checkpoints)
		topics("Write", "its output", DAGs, Checkpoints)
		loop("signer")
	case "reader":
		topics("Read", "what a SIEM reads; no content of envelopes", Turns, Sessions, DAGs, Checkpoints, Keys)
		a.add("group", "siem-", true, "Read", "consumer groups that begin with siem-")
	case "auditor":
		hooks("Read", "compares the evidence with what it is about")
		a.add("topic", "prov.", true, "Read", "reads everything")
		a.add("group", "provstream-", true, "Describe", "how far the services are")
	case "operator":
		describe()
		for _, op := range []string{"Create", "DescribeConfigs"} {
			a.add("topic", "prov.", true, op, "provctl topics create and check")
			a.add("topic", "acs.", true, op, "provctl topics create --hooks and check")
		}
		topics("Write", "provctl keys publish", Keys)
		topics("Read", "provctl keys list --topic and doctor", Keys)
		topics("Read", "the sizes of the logs, for keys that begin or end there", Checkpoints)
		topics("Read", "provctl state inspect", Steps, AggregatorState)
		topics("Read", "provctl redrive", DeadLetter)
		hooks("Write", "provctl redrive")
		hooks("Read", "provctl redrive of dead letters that refer to their source")
		a.add("group", "provstream-", true, "Describe", "provctl state inspect and doctor")
		a.add("group", "provstream-redrive-", true, "Read", "provctl redrive: how far each filter has come")
		a.add("transactional-id", "provstream-redrive-", true, "Write", "provctl redrive")
		a.add("transactional-id", "provstream-", true, "Describe", "provctl doctor: transactions that hang")
	case "canary":
		describe()
		hooks("Write", "its sessions")
		topics("Read", "their DAGs", DAGs)
	}
	return a.list
}

type acls struct {
	prefix string
	list   []ACL
}

func (a *acls) add(resource, name string, prefixed bool, operation, why string) {
	a.list = append(a.list, ACL{resource, a.prefix + name, prefixed, operation, why})
}
