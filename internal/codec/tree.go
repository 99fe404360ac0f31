package codec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"

	"provstream/internal/jcs"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// node is everything that must hold of the value at one position of an
// envelope, compiled from all the schemas that apply there ($ref and allOf
// included), and what is noted of the value while it is checked. A nil node is
// a value that nobody looks at.
//
// A node only knows how to say yes. Where it does not, jsonschema/v5 decides.
type node struct {
	types typeSet
	note  note
	// Strings, and whatever enum and const compare.
	enum           [][]byte // the canonical texts that are allowed; nil: any
	matches        func([]byte) bool
	format         string
	minLen, maxLen int // in code points; maxLen < 0: no limit
	// Numbers.
	minimum, maximum float64
	// Arrays.
	items              *node
	minItems, maxItems int // maxItems < 0: no limit
	unique             bool
	// Objects.
	props    []prop // in JCS order of their names
	required uint64 // a bit for each of props
	extra    *node  // of members that are not in props
	closed   bool   // no other members than props
	minProps int
	oneOf    []uint64 // exactly one of these sets of props is there
	conds    []cond
}

// prop is one member that some schema or note knows by name.
type prop struct {
	name      string
	head      uint64 // the name and its closing quote, as far as eight bytes hold them
	headMask  uint64
	node      *node
	forbidden bool
	keep      int // 1 + the place of its value among those that conds compare
}

// cond is an if of which only presence and equality decide. then is what is
// required where it holds; of an assumed one nothing is left but that it must
// hold, or must not.
type cond struct {
	required uint64
	equal    []equalTo
	negate   bool
	then     uint64
	assumed  bool
	want     bool
}

type equalTo struct {
	bit  uint64
	keep int
	text []byte
}

// typeSet is a set of JSON types; numbers are split into integers and others.
type typeSet uint8

const (
	typeNull typeSet = 1 << iota
	typeBoolean
	typeInteger
	typeFraction
	typeString
	typeArray
	typeObject

	typeNumber = typeInteger | typeFraction
	anyType    = typeNull | typeBoolean | typeNumber | typeString | typeArray | typeObject
)

var typeNames = map[string]typeSet{
	"null": typeNull, "boolean": typeBoolean, "integer": typeInteger, "number": typeNumber,
	"string": typeString, "array": typeArray, "object": typeObject,
}

// treeCompiler compiles nodes. present names the members whose presence an if
// with a then of its own schemas turns on: the tree is compiled for one of the
// cases, and the node checks at the end that it is the case.
type treeCompiler struct {
	present map[string]bool
}

// maxNesting ends the compilation of a schema that refers to itself.
const maxNesting = 40

// compile returns the node of a position at which all of schemas apply.
func (c *treeCompiler) compile(schemas []*jsonschema.Schema, notes *notes, depth int) (*node, error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("schemas nested deeper than %d", maxNesting)
	}
	n := &node{types: anyType, maxLen: -1, maxItems: -1, minimum: math.Inf(-1), maximum: math.Inf(1)}
	var flat []*jsonschema.Schema
	var ifs []*jsonschema.Schema
	for _, s := range schemas {
		if err := c.flatten(s, &flat, &ifs, 0); err != nil {
			return nil, err
		}
	}
	for _, s := range flat {
		if err := n.assertions(s); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Location, err)
		}
	}
	if err := c.members(n, flat, ifs, notes, depth); err != nil {
		return nil, err
	}
	if err := c.elements(n, flat, notes, depth); err != nil {
		return nil, err
	}
	if notes != nil {
		n.note = notes.note
	}
	if err := n.checkNote(); err != nil {
		return nil, err
	}
	if n.trivial() {
		return nil, nil
	}
	return n, nil
}

// flatten collects s and what applies at the same place. An if goes to ifs,
// unless its then is assumed.
func (c *treeCompiler) flatten(s *jsonschema.Schema, flat, ifs *[]*jsonschema.Schema, depth int) error {
	if depth > maxNesting {
		return fmt.Errorf("%s: refers to itself", s.Location)
	}
	if unknown := unhandled(s); unknown != "" {
		return fmt.Errorf("%s: keyword %s", s.Location, unknown)
	}
	if s.Always != nil { // true; false is unhandled
		return nil
	}
	*flat = append(*flat, s)
	below := slices.Clone(s.AllOf)
	if s.Ref != nil {
		below = append(below, s.Ref)
	}
	if s.If != nil {
		*ifs = append(*ifs, s)
		if assumed, holds, err := c.assumes(s); err != nil {
			return fmt.Errorf("%s: %w", s.Location, err)
		} else if assumed && holds {
			below = append(below, s.Then)
		}
	}
	for _, b := range below {
		if err := c.flatten(b, flat, ifs, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// assumes tells whether the if of s is decided by an assumption, and how: that
// is so where its then asserts more than that members are there.
func (c *treeCompiler) assumes(s *jsonschema.Schema) (assumed, holds bool, err error) {
	if s.Then == nil || onlyRequired(s.Then) {
		return false, false, nil
	}
	test, negate, ok := ifTest(s.If)
	if !ok || !onlyRequired(test) || len(test.Required) != 1 {
		return false, false, fmt.Errorf("an if that is not handled")
	}
	return true, c.present[test.Required[0]] != negate, nil
}

// ifTest looks behind the not of an if. ok is false where the if asserts more
// than required and the constants of members.
func ifTest(s *jsonschema.Schema) (test *jsonschema.Schema, negate, ok bool) {
	test = s
	if s.Not != nil {
		around := *s
		around.Not = nil
		if used(&around) != "" {
			return nil, false, false
		}
		test, negate = s.Not, true
	}
	rest := *test
	rest.Required, rest.Properties = nil, nil
	return test, negate, used(&rest) == ""
}

// onlyRequired tells whether s asserts nothing but required.
func onlyRequired(s *jsonschema.Schema) bool {
	c := *s
	c.Required = nil
	return used(&c) == ""
}

// assertions takes in the keywords of s that are not about members or items.
func (n *node) assertions(s *jsonschema.Schema) error {
	if len(s.Types) > 0 {
		allowed := typeSet(0)
		for _, t := range s.Types {
			allowed |= typeNames[t]
		}
		n.types &= allowed
	}
	for _, values := range [][]any{s.Enum, s.Constant} {
		if len(values) == 0 {
			continue
		}
		var texts [][]byte
		for _, v := range values {
			text, err := json.Marshal(v)
			if err == nil {
				text, err = jcs.Canonicalize(nil, text)
			}
			if err != nil {
				return err
			}
			if n.enum == nil || slices.ContainsFunc(n.enum, func(t []byte) bool { return bytes.Equal(t, text) }) {
				texts = append(texts, text)
			}
		}
		n.enum = append([][]byte{}, texts...)
	}
	if s.Format != "" {
		if n.format != "" && n.format != s.Format || s.Format != "uuid" && s.Format != "date-time" {
			return fmt.Errorf("format %s", s.Format)
		}
		n.format = s.Format
	}
	if s.Pattern != nil {
		if n.matches != nil {
			return fmt.Errorf("a second pattern")
		}
		n.matches = matcher(s.Pattern)
	}
	n.minLen = max(n.minLen, s.MinLength)
	n.maxLen = smallerLimit(n.maxLen, s.MaxLength)
	n.minItems = max(n.minItems, s.MinItems)
	n.maxItems = smallerLimit(n.maxItems, s.MaxItems)
	n.minProps = max(n.minProps, s.MinProperties)
	n.unique = n.unique || s.UniqueItems
	if s.Minimum != nil {
		f, err := double(s.Minimum)
		if err != nil {
			return err
		}
		n.minimum = max(n.minimum, f)
	}
	if s.Maximum != nil {
		f, err := double(s.Maximum)
		if err != nil {
			return err
		}
		n.maximum = min(n.maximum, f)
	}
	return nil
}

// double returns a limit as a double. A limit that is none cannot be compared
// exactly.
func double(r *big.Rat) (float64, error) {
	f, exact := r.Float64()
	if !exact {
		return 0, fmt.Errorf("limit %s is no double", r)
	}
	return f, nil
}

// smallerLimit returns the smaller of two limits, of which a negative one is
// none.
func smallerLimit(a, b int) int {
	if a < 0 || b >= 0 && b < a {
		return b
	}
	return a
}

// elements compiles what is said about the items of an array.
func (c *treeCompiler) elements(n *node, flat []*jsonschema.Schema, notes *notes, depth int) (err error) {
	var items []*jsonschema.Schema
	for _, s := range flat {
		if s.Items2020 != nil {
			items = append(items, s.Items2020)
		}
	}
	n.items, err = c.compile2(items, notes.below("*"), depth)
	if n.unique && n.items != nil && n.items.types&(typeArray|typeObject) != 0 {
		return fmt.Errorf("unique items that may be containers")
	}
	return err
}

// compile2 is compile of the level below; nothing said is nothing to do.
func (c *treeCompiler) compile2(schemas []*jsonschema.Schema, notes *notes, depth int) (*node, error) {
	if len(schemas) == 0 && notes == nil {
		return nil, nil
	}
	return c.compile(schemas, notes, depth+1)
}

// members compiles what is said about the members of an object.
func (c *treeCompiler) members(n *node, flat, ifs []*jsonschema.Schema, notes *notes, depth int) error {
	names := make(map[string]bool)
	addAll := func(list []string) {
		for _, name := range list {
			names[name] = true
		}
	}
	for _, s := range flat {
		for name := range s.Properties {
			names[name] = true
		}
		addAll(s.Required)
		for _, alternative := range s.OneOf {
			addAll(alternative.Required)
		}
	}
	for _, s := range ifs {
		test, _, ok := ifTest(s.If)
		if !ok {
			return fmt.Errorf("%s: an if that is not handled", s.Location)
		}
		addAll(test.Required)
		for name := range test.Properties {
			names[name] = true
		}
		if s.Then != nil && onlyRequired(s.Then) {
			addAll(s.Then.Required)
		}
	}
	addAll(notes.names())
	for name := range names {
		if !isPlainName(name) {
			return fmt.Errorf("member name %q", name)
		}
		n.props = append(n.props, prop{name: name})
	}
	if len(n.props) > 64 {
		return fmt.Errorf("%d members by name", len(n.props))
	}
	slices.SortFunc(n.props, func(a, b prop) int { return jcs.CompareNames(a.name, b.name) })
	for i := range n.props {
		n.props[i].setHead()
		if err := c.member(&n.props[i], flat, notes, depth); err != nil {
			return err
		}
	}
	var extra []*jsonschema.Schema
	for _, s := range flat {
		switch a := s.AdditionalProperties.(type) {
		case bool:
			n.closed = n.closed || !a
		case *jsonschema.Schema:
			extra = append(extra, a)
		}
		n.required |= n.bits(s.Required)
		if len(s.OneOf) > 0 {
			if len(n.oneOf) > 0 {
				return fmt.Errorf("%s: a second oneOf", s.Location)
			}
			for _, alternative := range s.OneOf {
				n.oneOf = append(n.oneOf, n.bits(alternative.Required))
			}
		}
	}
	var err error
	if n.extra, err = c.compile2(extra, notes.below("?"), depth); err != nil {
		return err
	}
	for _, s := range ifs {
		if err := c.cond(n, s); err != nil {
			return fmt.Errorf("%s: %w", s.Location, err)
		}
	}
	if (len(n.conds) > 0 || len(n.oneOf) > 0) && n.types != typeObject {
		return fmt.Errorf("a condition on a value that may be no object")
	}
	return nil
}

// member compiles the node of one member that is known by name.
func (c *treeCompiler) member(p *prop, flat []*jsonschema.Schema, notes *notes, depth int) (err error) {
	var schemas []*jsonschema.Schema
	for _, s := range flat {
		if sch, ok := s.Properties[p.name]; ok {
			schemas = append(schemas, sch)
			continue
		}
		switch a := s.AdditionalProperties.(type) {
		case bool:
			p.forbidden = p.forbidden || !a
		case *jsonschema.Schema:
			schemas = append(schemas, a)
		}
	}
	p.node, err = c.compile2(schemas, notes.below(p.name), depth)
	return err
}

// cond compiles an if.
func (c *treeCompiler) cond(n *node, s *jsonschema.Schema) error {
	if s.Then == nil {
		return nil
	}
	k := cond{}
	test, negate, ok := ifTest(s.If)
	if !ok {
		return fmt.Errorf("an if that is not handled")
	}
	k.negate = negate
	k.required = n.bits(test.Required)
	for name, sch := range test.Properties {
		constant := *sch
		constant.Constant = nil
		if used(&constant) != "" || len(sch.Constant) != 1 {
			return fmt.Errorf("an if that is not handled")
		}
		text, err := json.Marshal(sch.Constant[0])
		if err == nil {
			text, err = jcs.Canonicalize(nil, text)
		}
		if err != nil {
			return err
		}
		k.equal = append(k.equal, equalTo{bit: n.bits([]string{name}), keep: n.keep(name), text: text})
	}
	if onlyRequired(s.Then) {
		k.then = n.bits(s.Then.Required)
	} else {
		var err error
		if k.assumed, k.want, err = c.assumes(s); err != nil {
			return err
		}
	}
	n.conds = append(n.conds, k)
	return nil
}

// bits returns the set of props with the given names.
func (n *node) bits(names []string) (set uint64) {
	for _, name := range names {
		i := slices.IndexFunc(n.props, func(p prop) bool { return p.name == name })
		set |= 1 << i
	}
	return set
}

// maxKept is how many values the conditions of one object may compare.
const maxKept = 2

// keep returns the place at which the value of a member is kept for conds.
func (n *node) keep(name string) int {
	used := 0
	for i := range n.props {
		used = max(used, n.props[i].keep)
	}
	i := slices.IndexFunc(n.props, func(p prop) bool { return p.name == name })
	if n.props[i].keep == 0 {
		n.props[i].keep = used + 1
	}
	return n.props[i].keep
}

// isPlainName tells whether a name stands in canonical text as it is, and
// compares with others by its bytes.
func isPlainName(name string) bool {
	return jcs.EndOfPlain([]byte(name), 0) == len(name)
}

// trivial tells whether a node neither asserts nor notes anything.
func (n *node) trivial() bool {
	return n.types == anyType && n.note == (note{}) && n.enum == nil && n.matches == nil && n.format == "" &&
		n.minLen <= 0 && n.maxLen < 0 && math.IsInf(n.minimum, -1) && math.IsInf(n.maximum, 1) &&
		n.items == nil && n.minItems <= 0 && n.maxItems < 0 && !n.unique && n.required == 0 && n.extra == nil &&
		!n.closed && n.minProps <= 0 && n.oneOf == nil && n.conds == nil &&
		!slices.ContainsFunc(n.props, func(p prop) bool { return p.node != nil || p.forbidden })
}
