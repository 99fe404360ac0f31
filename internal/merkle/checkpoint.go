package merkle

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/mod/sumdb/note"
)

// Checkpoint is the text of a signed tree head (C2SP tlog-checkpoint). Our
// checkpoints have no extension lines.
type Checkpoint struct {
	Origin string
	Size   int64
	Root   Hash
}

// Text is the body that is signed.
func (c Checkpoint) Text() string {
	return c.Origin + "\n" + strconv.FormatInt(c.Size, 10) + "\n" + base64.StdEncoding.EncodeToString(c.Root[:]) + "\n"
}

// ErrCheckpoint is wrapped by every error about a checkpoint that is not
// well-formed.
var ErrCheckpoint = errors.New("malformed checkpoint")

// ParseCheckpoint reads a body, byte for byte as Text writes it.
func ParseCheckpoint(text string) (Checkpoint, error) {
	var c Checkpoint
	lines := strings.SplitAfter(text, "\n")
	if len(lines) != 4 || lines[3] != "" {
		return c, fmt.Errorf("%w: want three lines (origin, size, root hash)", ErrCheckpoint)
	}
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], "\n")
	}
	if err := CheckOrigin(lines[0]); err != nil {
		return c, fmt.Errorf("%w: %w", ErrCheckpoint, err)
	}
	size, ok := parseSize(lines[1])
	if !ok {
		return c, fmt.Errorf("%w: the size is no decimal number", ErrCheckpoint)
	}
	root, ok := parseHash([]byte(lines[2]))
	if !ok {
		return c, fmt.Errorf("%w: the root hash is not base64 of 32 bytes", ErrCheckpoint)
	}
	return Checkpoint{Origin: lines[0], Size: size, Root: root}, nil
}

func parseSize(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > MaxSize || strconv.FormatInt(n, 10) != s {
		return 0, false
	}
	return n, true
}

// Origin names the log of one partition: <deployment>/<topic>/<partition>.
func Origin(deployment, topic string, partition int32) string {
	return deployment + "/" + topic + "/" + strconv.FormatInt(int64(partition), 10)
}

// CheckOrigin tells whether a name can be the origin of a log and, with it,
// the name of a note key: not empty, valid UTF-8, no white space, no plus.
func CheckOrigin(origin string) error {
	if origin == "" || !utf8.ValidString(origin) || strings.ContainsRune(origin, '+') ||
		strings.IndexFunc(origin, func(r rune) bool { return unicode.IsSpace(r) || r < 0x20 }) >= 0 {
		return fmt.Errorf("origin %q: a log's name is not empty and has no white space and no plus sign", origin)
	}
	return nil
}

// noteKeyHash is the key id of a note signature (C2SP signed-note): the first
// four bytes of SHA-256(name || "\n" || 0x01 || public key).
func noteKeyHash(name string, public ed25519.PublicKey) uint32 {
	b := make([]byte, 0, len(name)+2+ed25519.PublicKeySize)
	b = append(b, name...)
	b = append(b, '\n', 1)
	b = append(b, public...)
	sum := sha256.Sum256(b)
	return binary.BigEndian.Uint32(sum[:])
}

// VerifierKey writes the log key as a note verifier key
// (name+hash+base64), the form that other tools of the field take.
func VerifierKey(origin string, public ed25519.PublicKey) (string, error) {
	if err := CheckOrigin(origin); err != nil {
		return "", err
	}
	return note.NewEd25519VerifierKey(origin, public)
}

type noteSigner struct {
	name string
	key  ed25519.PrivateKey
	hash uint32
}

func (s *noteSigner) Name() string                    { return s.name }
func (s *noteSigner) KeyHash() uint32                 { return s.hash }
func (s *noteSigner) Sign(msg []byte) ([]byte, error) { return ed25519.Sign(s.key, msg), nil }

// NewSigner makes the note signer of the log with that origin: the name of
// the key is the origin.
func NewSigner(origin string, key ed25519.PrivateKey) (note.Signer, error) {
	if err := CheckOrigin(origin); err != nil {
		return nil, err
	}
	if len(key) != ed25519.PrivateKeySize {
		return nil, fmt.Errorf("log key of %s: not an Ed25519 private key", origin)
	}
	return &noteSigner{origin, key, noteKeyHash(origin, key.Public().(ed25519.PublicKey))}, nil
}

type noteVerifier struct {
	name string
	key  ed25519.PublicKey
	hash uint32
}

func (v *noteVerifier) Name() string                { return v.name }
func (v *noteVerifier) KeyHash() uint32             { return v.hash }
func (v *noteVerifier) Verify(msg, sig []byte) bool { return ed25519.Verify(v.key, msg, sig) }

// NewVerifier makes the note verifier of the log with that origin.
func NewVerifier(origin string, public ed25519.PublicKey) (note.Verifier, error) {
	if err := CheckOrigin(origin); err != nil {
		return nil, err
	}
	if len(public) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("log key of %s: not an Ed25519 public key", origin)
	}
	return &noteVerifier{origin, public, noteKeyHash(origin, public)}, nil
}

// Sign makes the signed note of a checkpoint.
func (c Checkpoint) Sign(s note.Signer) ([]byte, error) {
	if s.Name() != c.Origin {
		return nil, fmt.Errorf("checkpoint of %s: the key is named %s", c.Origin, s.Name())
	}
	return note.Sign(&note.Note{Text: c.Text()}, s)
}

// PeekCheckpoint reads a signed note without checking any signature: what it
// returns is a claim, good for choosing the key to check it with.
func PeekCheckpoint(msg []byte) (Checkpoint, error) {
	i := bytes.Index(msg, []byte("\n\n"))
	if i < 0 {
		return Checkpoint{}, fmt.Errorf("%w: no blank line before the signatures", ErrCheckpoint)
	}
	return ParseCheckpoint(string(msg[:i+1]))
}

// Errors of OpenCheckpoint about the signature of a well-formed checkpoint.
var (
	ErrUnknownKey = errors.New("checkpoint signed by an unknown key")
	ErrSignature  = errors.New("checkpoint signature does not verify")
)

// OpenCheckpoint checks a signed note with the given keys of its log and
// returns the checkpoint and which of the keys (by index) has signed it.
// Signatures by other names, such as those of witnesses, are let be. Unlike
// note.Open it refuses base64 that is not canonical, so that no bit of our
// own line can change unseen.
func OpenCheckpoint(msg []byte, publics []ed25519.PublicKey) (Checkpoint, int, error) {
	c, err := PeekCheckpoint(msg)
	if err != nil {
		return c, -1, err
	}
	verifiers := make([]note.Verifier, 0, len(publics))
	byHash := make(map[uint32]int, len(publics))
	for i, p := range publics {
		v, err := NewVerifier(c.Origin, p)
		if err != nil {
			return c, -1, err
		}
		if _, twice := byHash[v.KeyHash()]; twice {
			continue
		}
		byHash[v.KeyHash()] = i
		verifiers = append(verifiers, v)
	}
	n, err := note.Open(msg, note.VerifierList(verifiers...))
	switch err := err.(type) {
	case nil:
	case *note.UnverifiedNoteError:
		return c, -1, fmt.Errorf("%w: none of the %d log keys given is %s", ErrUnknownKey, len(verifiers), noteKeyNames(err.Note))
	case *note.InvalidSignatureError:
		return c, -1, fmt.Errorf("%w: that of key %s+%08x is not over this text", ErrSignature, err.Name, err.Hash)
	default:
		return c, -1, fmt.Errorf("%w: %w", ErrCheckpoint, err)
	}
	if n.Text != c.Text() {
		return c, -1, fmt.Errorf("%w: text before a second blank line", ErrCheckpoint)
	}
	if bytes.Count(msg, []byte("\n— "+c.Origin+" ")) != 1 {
		return c, -1, fmt.Errorf("%w: more than one signature line of the log", ErrCheckpoint)
	}
	for _, s := range n.Sigs {
		raw, err := strictBase64.DecodeString(s.Base64)
		if err != nil || len(raw) != 4+ed25519.SignatureSize {
			return c, -1, fmt.Errorf("%w: the signature is no canonical base64 of 68 bytes", ErrCheckpoint)
		}
	}
	return c, byHash[n.Sigs[0].Hash], nil
}

func noteKeyNames(n *note.Note) string {
	var names []string
	for _, s := range n.UnverifiedSigs {
		names = append(names, fmt.Sprintf("%s+%08x", s.Name, s.Hash))
		if len(names) == 3 {
			break
		}
	}
	return strings.Join(names, ", ")
}
