// Package schema holds the JSON Schemas (2020-12) that provstream is held to,
// and compiles them.
//
// files/ is the input side: ACS v0.1.0 as this project reads it, one file a
// schema under the published names. They are the one source of truth about what
// is accepted; nothing in the code repeats them. outputs/ is the output side:
// the formats of the prov.* topics, published for those who read them.
//
// Formats are assertions: uuid as jsonschema/v5 has it, date-time strictly by
// RFC 3339 (v5's own lets T+1:00:00Z pass).
package schema

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"provstream/internal/acs"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// Base is the prefix of the $id of every schema of ACS v0.1.0.
const Base = "https://genai-security-project.github.io/agent-control-standard/schema/v0.1.0/"

//go:embed files
var inputFiles embed.FS

//go:embed outputs
var outputFiles embed.FS

// Set is the compiled schemas. A Set is safe for concurrent use.
type Set struct {
	Request  *jsonschema.Schema // the envelope of a hook
	Response *jsonschema.Schema // the envelope of a decision
	payloads map[string]*jsonschema.Schema
	strict   map[string]*jsonschema.Schema
}

// ACS returns the compiled schemas of ACS v0.1.0. They are compiled once.
func ACS() (*Set, error) { return compiled() }

var compiled = sync.OnceValues(compile)

// Payload returns the schema of the payload of method, nil where it has none.
func (s *Set) Payload(method string) *jsonschema.Schema { return s.payloads[method] }

// Strict returns the sibling of Payload that demands provenance on every
// data-bearing field, nil where there is none.
func (s *Set) Strict(method string) *jsonschema.Schema { return s.strict[method] }

// Methods returns the methods whose payload has a schema, sorted.
func (s *Set) Methods() []string {
	methods := make([]string, 0, len(s.payloads))
	for m := range s.payloads {
		methods = append(methods, m)
	}
	slices.Sort(methods)
	return methods
}

// payloadMethods are the methods of the inventory. Each of steps/, agbom/ and
// system/ has a file of its own.
var payloadMethods = []string{
	acs.MethodSessionStart, acs.MethodAgentTrigger, acs.MethodTurnStart, acs.MethodUserMessage, acs.MethodAgentResponse,
	acs.MethodKnowledgeRetrieval, acs.MethodMemoryContextRetrieval, acs.MethodMemoryStore, acs.MethodToolCallRequest,
	acs.MethodToolCallResult, acs.MethodPreCompact, acs.MethodPostCompact, acs.MethodSubagentStart, acs.MethodSubagentStop,
	acs.MethodSkillRegister, acs.MethodSkillLoad, acs.MethodSkillUnload, acs.MethodTurnEnd, acs.MethodSessionEnd,
	acs.MethodAgBOMSnapshot, acs.MethodAgBOMChanged, acs.MethodSystemPing,
}

// hookFile is the base name of the schema of a method: steps/turnEnd is
// turn-end, agbom/snapshot is agbom-snapshot.
func hookFile(method string) string {
	var b strings.Builder
	for _, r := range strings.TrimPrefix(method, "steps/") {
		switch {
		case r >= 'A' && r <= 'Z':
			b.WriteByte('-')
			b.WriteRune(r + 'a' - 'A')
		case r == '/':
			b.WriteByte('-')
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func compile() (*Set, error) {
	c := newCompiler()
	err := fs.WalkDir(inputFiles, "files", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, err := inputFiles.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		return c.AddResource(Base+strings.TrimPrefix(name, "files/"), f)
	})
	if err != nil {
		return nil, fmt.Errorf("read the embedded schemas: %w", err)
	}
	s := &Set{payloads: make(map[string]*jsonschema.Schema), strict: make(map[string]*jsonschema.Schema)}
	var faults []error
	get := func(name string) *jsonschema.Schema {
		sch, err := c.Compile(Base + name)
		faults = append(faults, err)
		return sch
	}
	s.Request = get("request-envelope.json")
	s.Response = get("response-envelope.json")
	s.payloads[acs.MethodHandshakeHello] = get("handshake.json#/$defs/ClientHello")
	for _, method := range payloadMethods {
		name := "hooks/" + hookFile(method)
		s.payloads[method] = get(name + ".json")
		if _, err := fs.Stat(inputFiles, "files/"+name+".acs-provenance.json"); err == nil {
			s.strict[method] = get(name + ".acs-provenance.json")
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("compile the embedded schemas: %w", err)
	}
	return s, nil
}

// newCompiler returns a compiler with this project's settings. It never loads
// anything from elsewhere.
func newCompiler() *jsonschema.Compiler {
	c := jsonschema.NewCompiler()
	c.Draft = jsonschema.Draft2020
	c.AssertFormat = true
	c.LoadURL = func(url string) (io.ReadCloser, error) {
		return nil, fmt.Errorf("%s is not among the embedded schemas", url)
	}
	c.Formats["date-time"] = func(v any) bool {
		s, ok := v.(string)
		if !ok {
			return true
		}
		_, ok = ParseInstant(s)
		return ok
	}
	return c
}

// CompileOutput compiles the published schema of one of our own formats, by
// its name in List ("outputs/step.json").
func CompileOutput(name string) (*jsonschema.Schema, error) {
	c := newCompiler()
	entries, err := outputFiles.ReadDir("outputs")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		f, err := outputFiles.Open("outputs/" + e.Name())
		if err != nil {
			return nil, err
		}
		err = c.AddResource(OutputBase+e.Name(), f)
		f.Close()
		if err != nil {
			return nil, err
		}
	}
	return c.Compile(OutputBase + path.Base(name))
}

// OutputBase is the prefix of the $id of every schema of outputs/.
const OutputBase = "urn:provstream:schema:v1:"

// List returns the names of all schema files, sorted: those of ACS as they
// stand below the base of their $id, our own below outputs/.
func List() []string {
	var names []string
	for _, tree := range []struct {
		files embed.FS
		strip string
	}{{inputFiles, "files/"}, {outputFiles, ""}} {
		_ = fs.WalkDir(tree.files, ".", func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				names = append(names, strings.TrimPrefix(name, tree.strip))
			}
			return err
		})
	}
	slices.Sort(names)
	return names
}

// Read returns the text of a schema file by its name in List.
func Read(name string) ([]byte, error) {
	if strings.HasPrefix(name, "outputs/") {
		return outputFiles.ReadFile(name)
	}
	return inputFiles.ReadFile("files/" + name)
}
