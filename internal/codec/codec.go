// Package codec turns the bytes of Kafka records into what the other parts
// work with, and back: a hook record into steps or a dead letter ([Reader]), a
// step into the value of a prov.steps record and back ([AppendStep],
// [DecodeStep]). It knows no Kafka client.
//
// # What a Reader does
//
// A record is read in this order, and the first check that fails names the
// dead-letter kind: oversize, not_json, not_strict, version, envelope, payload,
// unknown_method, tenant_mismatch, unroutable, provenance. What passes becomes
// one step (or is dropped by rule: pings, their answers, ServerHello results);
// what fails and still tells whose it is becomes a step too, a rejected one, so
// that an agent cannot hide a call by breaking its JSON.
//
// # Two ways that must agree
//
// Nearly every record takes the fast way: one pass brings the record into its
// canonical form (RFC 8785), a second walks the canonical text along a tree
// compiled from the JSON Schemas, checks it and notes where the members stand
// that a step keeps, and the step is written from those places. No tree of
// values is built, and JCS of the payload is a slice of JCS of the params.
//
// A record that the fast way does not accept is read again in the plain way:
// into a tree of values, by jsonschema/v5, into an [acs.Step]. That decides
// every rejection and tells the pointer and the keyword. Tests hold the two
// ways to the same bytes.
package codec
