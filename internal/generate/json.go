package generate

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// object is a JSON object whose members keep their order, so that an envelope
// looks as producers write it and a fault can change any member.
type object []member

type member struct {
	name  string
	value any // string, bool, int, int64, float64, nil, object, *object, []any, []string, []object, *prov, rawText
}

// rawText is JSON text that stands as it is.
type rawText string

// prov is one Provenance object (ACS §7).
type prov struct {
	id, origin, source string
	parents            []string
}

// obj builds an object from name, value, name, value…; a nil value leaves the
// member out.
func obj(pairs ...any) object {
	o := make(object, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == nil {
			continue
		}
		if p, ok := pairs[i+1].(*prov); ok && p == nil {
			continue
		}
		o = append(o, member{pairs[i].(string), pairs[i+1]})
	}
	return o
}

func (o object) get(name string) any {
	for _, m := range o {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

func (o *object) set(name string, v any) {
	for i := range *o {
		if (*o)[i].name == name {
			(*o)[i].value = v
			return
		}
	}
	*o = append(*o, member{name, v})
}

func (o *object) drop(name string) {
	for i := range *o {
		if (*o)[i].name == name {
			*o = append((*o)[:i:i], (*o)[i+1:]...)
			return
		}
	}
}

func (o object) clone() object { return append(object(nil), o...) }

func appendValue(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...)
	case string:
		return appendString(dst, v)
	case bool:
		return strconv.AppendBool(dst, v)
	case int:
		return strconv.AppendInt(dst, int64(v), 10)
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case float64:
		return strconv.AppendFloat(dst, v, 'g', -1, 64)
	case rawText:
		return append(dst, v...)
	case object:
		return appendObject(dst, v)
	case *object:
		return appendObject(dst, *v)
	case *prov:
		return appendProv(dst, v)
	case []string:
		return appendList(dst, v)
	case []any:
		return appendList(dst, v)
	case []object:
		return appendList(dst, v)
	}
	panic("generate: no JSON for this type")
}

func appendList[T any](dst []byte, list []T) []byte {
	dst = append(dst, '[')
	for i, v := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendValue(dst, v)
	}
	return append(dst, ']')
}

func appendObject(dst []byte, o object) []byte {
	dst = append(dst, '{')
	for i, m := range o {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, m.name)
		dst = append(dst, ':')
		dst = appendValue(dst, m.value)
	}
	return append(dst, '}')
}

func appendProv(dst []byte, p *prov) []byte {
	dst = append(dst, `{"provenance_id":`...)
	dst = appendString(dst, p.id)
	dst = append(dst, `,"origin":`...)
	dst = appendString(dst, p.origin)
	if p.source != "" {
		dst = append(dst, `,"source_id":`...)
		dst = appendString(dst, p.source)
	}
	if len(p.parents) > 0 {
		dst = append(dst, `,"derived_from":`...)
		dst = appendList(dst, p.parents)
	}
	return append(dst, '}')
}

func appendString(dst []byte, s string) []byte {
	out, err := jsontext.AppendQuote(dst, s)
	if err != nil {
		panic("generate: text is not UTF-8")
	}
	return out
}
