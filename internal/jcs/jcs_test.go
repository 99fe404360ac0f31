package jcs

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	webpki "github.com/gowebpki/jcs"
	"pgregory.net/rapid"
)

func readJSON(t testing.TB, file string, v any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func TestVectors(t *testing.T) {
	var vectors struct {
		Canonical []struct {
			Name, Input, Canonical string
			SHA256                 string `json:"sha256_hex"`
		}
		Refused []struct {
			Name, Input string
			Hex         string `json:"input_hex"`
		} `json:"must_be_refused"`
	}
	readJSON(t, "testdata/jcs-vectors.json", &vectors)
	for _, v := range vectors.Canonical {
		got, err := Canonicalize(nil, []byte(v.Input))
		if err != nil || string(got) != v.Canonical {
			t.Errorf("%s: got %s, %v; want %s", v.Name, got, err, v.Canonical)
		}
		if sum := sha256.Sum256(got); v.SHA256 != "" && hex.EncodeToString(sum[:]) != v.SHA256 {
			t.Errorf("%s: SHA-256 %x, want %s", v.Name, sum, v.SHA256)
		}
	}
	for _, v := range vectors.Refused {
		input := []byte(v.Input)
		if v.Hex != "" {
			input, _ = hex.DecodeString(v.Hex)
		}
		if got, err := Canonicalize(nil, input); err == nil {
			t.Errorf("%s: accepted as %s", v.Name, got)
		}
	}
}

func TestNodeVectors(t *testing.T) {
	var vectors struct {
		Cases []struct {
			ID, Input string
			Hex       string `json:"canonical_hex"`
		}
	}
	readJSON(t, "testdata/node-canonical.json", &vectors)
	if len(vectors.Cases) == 0 {
		t.Fatal("no cases")
	}
	for _, v := range vectors.Cases {
		got, err := Canonicalize(nil, []byte(v.Input))
		if v.ID == "lone-surrogate" { // JavaScript writes it; RFC 8785 forbids it
			if !errors.Is(err, ErrSurrogate) {
				t.Errorf("%s: %s, %v", v.ID, got, err)
			}
			continue
		}
		if err != nil || hex.EncodeToString(got) != v.Hex {
			t.Errorf("%s: got %s, %v; want hex %s", v.ID, got, err, v.Hex)
		}
	}
}

// The sample numbers of RFC 8785, appendix B.
func TestAppendNumberRFC8785(t *testing.T) {
	for bits, want := range map[uint64]string{
		0x0000000000000000: "0", 0x8000000000000000: "0",
		0x0000000000000001: "5e-324", 0x8000000000000001: "-5e-324",
		0x7fefffffffffffff: "1.7976931348623157e+308", 0xffefffffffffffff: "-1.7976931348623157e+308",
		0x4340000000000000: "9007199254740992", 0xc340000000000000: "-9007199254740992",
		0x4430000000000000: "295147905179352830000", 0x44b52d02c7e14af5: "9.999999999999997e+22",
		0x44b52d02c7e14af6: "1e+23", 0x44b52d02c7e14af7: "1.0000000000000001e+23",
		0x444b1ae4d6e2ef4e: "999999999999999700000", 0x444b1ae4d6e2ef4f: "999999999999999900000",
		0x444b1ae4d6e2ef50: "1e+21", 0x3eb0c6f7a0b5ed8c: "9.999999999999997e-7",
		0x3eb0c6f7a0b5ed8d: "0.000001", 0x41b3de4355555553: "333333333.3333332",
		0x41b3de4355555554: "333333333.33333325", 0x41b3de4355555555: "333333333.3333333",
		0x41b3de4355555556: "333333333.3333334", 0x41b3de4355555557: "333333333.33333343",
		0xbecbf647612f3696: "-0.0000033333333333333333", 0x43143ff3c1cb0959: "1424953923781206.2",
	} {
		if got := string(AppendNumber(nil, math.Float64frombits(bits))); got != want {
			t.Errorf("%016x: got %s, want %s", bits, got, want)
		}
	}
}

func TestRefused(t *testing.T) {
	deep := strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth)
	if _, err := Canonicalize(nil, []byte(deep)); err != nil {
		t.Errorf("depth %d: %v", MaxDepth, err)
	}
	for input, want := range map[string]error{
		"":                     ErrSyntax,
		" ":                    ErrSyntax,
		"[" + deep + "]":       ErrDepth,
		`{"a":` + deep + `}`:   ErrDepth,
		"1 2":                  ErrSyntax,
		"01":                   ErrSyntax,
		"-":                    ErrSyntax,
		"+1":                   ErrSyntax,
		"1.":                   ErrSyntax,
		".5":                   ErrSyntax,
		"1e":                   ErrSyntax,
		"1e+":                  ErrSyntax,
		"0x10":                 ErrSyntax,
		"NaN":                  ErrSyntax,
		"Infinity":             ErrSyntax,
		"tru":                  ErrSyntax,
		"nulll":                ErrSyntax,
		"\ufeff{}":             ErrSyntax,
		"[1,]":                 ErrSyntax,
		"[,1]":                 ErrSyntax,
		"[1 2]":                ErrSyntax,
		"[":                    ErrSyntax,
		"{":                    ErrSyntax,
		`{"a"}`:                ErrSyntax,
		`{"a":}`:               ErrSyntax,
		`{"a":1,}`:             ErrSyntax,
		`{a:1}`:                ErrSyntax,
		`{"a":1 "b":2}`:        ErrSyntax,
		"\"a\nb\"":             ErrSyntax,
		"\"a\x00b\"":           ErrSyntax,
		`"\x"`:                 ErrSyntax,
		`"\u12"`:               ErrSyntax,
		`"\u12g4"`:             ErrSyntax,
		`"\`:                   ErrSyntax,
		`"abc`:                 ErrSyntax,
		"'a'":                  ErrSyntax,
		"[1]\v":                ErrSyntax,
		`"\ud800"`:             ErrSurrogate,
		`"\ud800\u0041"`:       ErrSurrogate,
		`"\ud800\ud800\udc00"`: ErrSurrogate,
		`"\udc00"`:             ErrSurrogate,
		"\"\xff\"":             ErrUTF8,
		"\"\xc0\x80\"":         ErrUTF8,
		"\"\xed\xa0\x80\"":     ErrUTF8, // a surrogate in UTF-8
		"\"\xf4\x90\x80\x80\"": ErrUTF8,
		"\"\xe2\x82\"":         ErrUTF8,
		`{"a":1,"b":2,"a":3}`:  ErrDuplicate,
		`{"a":1,"\u0061":3}`:   ErrDuplicate,
		`{"b":1,"a":2,"b":3}`:  ErrDuplicate,
		`{"\n":1,"\u000a":3}`:  ErrDuplicate,
		"1e400":                ErrNumber,
		"-1e309":               ErrNumber,
		"[1e999999999999]":     ErrNumber,
	} {
		got, err := Canonicalize([]byte("x"), []byte(input))
		if !errors.Is(err, want) || string(got) != "x" {
			t.Errorf("%.40q: got %q, %v; want %v", input, got, err, want)
		}
	}
}

func TestNumbersOutOfTheOrdinary(t *testing.T) {
	for input, want := range map[string]string{
		"-0": "0", "-0.0": "0", "0e5": "0", "1e-400": "0", "-1e-30000000": "0", "100": "100", "1e2": "100",
		"123456789012345": "123456789012345", "1234567890123456789": "1234567890123456800",
		"0.0000001": "1e-7", "0.10": "0.1", "10.0": "10", "-5": "-5", "1E+2": "100", "0.000001": "0.000001",
		"0." + strings.Repeat("0", 400) + "1": "0", "1" + strings.Repeat("0", 300): "1e+300",
	} {
		got, err := Canonicalize(nil, []byte(input))
		if err != nil || string(got) != want {
			t.Errorf("%.40s: got %s, %v; want %s", input, got, err, want)
		}
	}
}

func TestAppendString(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := strings.ToValidUTF8(rapid.String().Draw(t, "s"), "?")
		got := AppendString(nil, s)
		var back string
		if err := json.Unmarshal(got, &back); err != nil || back != s {
			t.Fatalf("%q reads back as %q, %v", got, back, err)
		}
		text, _ := json.Marshal(s)
		if want, err := webpki.Transform(text); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("got %s, want %s, %v", got, want, err)
		}
	})
}

func TestCompareNames(t *testing.T) {
	names := rapid.StringOf(rapid.OneOf(
		rapid.RuneFrom([]rune{0, '\n', '"', '\\', 'a', 'b', 'é', 0xd7ff, 0xe000, 0xfb33, 0xffff, 0x10000, 0x1f600, 0x10ffff}), rapid.Rune()))
	rapid.Check(t, func(t *rapid.T) {
		a, b := names.Draw(t, "a"), names.Draw(t, "b")
		if !utf8.ValidString(a) || !utf8.ValidString(b) {
			t.Skip()
		}
		want := compareUTF16(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
		if got := sign(CompareNames(a, b)); got != want {
			t.Fatalf("CompareNames(%q, %q) = %d, want %d", a, b, got, want)
		}
		x, y := AppendString(nil, a), AppendString(nil, b)
		if got := sign(compareCanonical(x[1:len(x)-1], y[1:len(y)-1])); got != want {
			t.Fatalf("compareCanonical(%q, %q) = %d, want %d", a, b, got, want)
		}
	})
}

func compareUTF16(a, b []uint16) int {
	for i := 0; i < len(a) && i < len(b); i++ {
		if a[i] != b[i] {
			return sign(int(a[i]) - int(b[i]))
		}
	}
	return sign(len(a) - len(b))
}

func sign(n int) int {
	return max(-1, min(1, n))
}

// An object with many members out of order takes the other sort.
func TestManyMembers(t *testing.T) {
	var in bytes.Buffer
	in.WriteByte('{')
	for i := range 1000 {
		if i > 0 {
			in.WriteByte(',')
		}
		text, _ := json.Marshal(map[string]int{"n": i * 7919 % 1000})
		in.WriteByte('"')
		in.WriteString(strings.Repeat("x", i%3) + hex.EncodeToString([]byte{byte(i * 37), byte(i >> 2), byte(i)}))
		in.WriteString(`":`)
		in.Write(text)
	}
	in.WriteByte('}')
	got, err := Canonicalize(nil, in.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	want, err := webpki.Transform(in.Bytes())
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("differs from gowebpki/jcs: %v", err)
	}
}

// FuzzCanonicalize holds the package to gowebpki/jcs on every input that both
// accept, and to itself: what it writes is its own canonical form.
func FuzzCanonicalize(f *testing.F) {
	var node struct{ Cases []struct{ Input string } }
	readJSON(f, "testdata/node-canonical.json", &node)
	for _, c := range node.Cases {
		f.Add([]byte(c.Input))
	}
	for _, s := range []string{
		`{"b":[{"d":1,"c":2},[]],"a":{}}`, `{"a":{"z":1,"y":{"x":1,"w":2}},"\u0000":"\/"}`, `[1e-30000000]`, `[1e400]`,
		strings.Repeat("[", 200), `{"a":1,"a":2}`, "{\"\xff\":1}", `"\ud83d\ude00\ud83d"`, `{"é":1,"😀":2,"דּ":3}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		got, err := Canonicalize(nil, src)
		theirs, theirErr := webpki.Transform(src)
		if err != nil {
			// What is refused is refused for the reason that is told.
			if errors.Is(err, ErrUTF8) && utf8.Valid(src) || errors.Is(err, ErrSyntax) && json.Valid(src) {
				t.Fatalf("%q: %v", src, err)
			}
			return
		}
		if !json.Valid(src) {
			t.Fatalf("%q accepted, and is no JSON", src)
		}
		if again, err := Canonicalize(nil, got); err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%q: canonical %q becomes %q, %v", src, got, again, err)
		}
		if theirErr == nil && !bytes.Equal(got, theirs) {
			t.Fatalf("%q: got %q, gowebpki/jcs %q", src, got, theirs)
		}
	})
}
