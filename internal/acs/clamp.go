package acs

import (
	"crypto/sha256"
	"encoding/hex"
	"unicode/utf8"
)

// clampKeep is how many bytes of a long string stay readable.
const clampKeep = 190

// Clamp bounds a string that is taken over from an envelope: longer than
// [MaxString] bytes it becomes its first 190 bytes (cut at a code point), "#"
// and the 64 hexadecimal digits of its SHA-256. Equal stays equal, size stays
// bounded.
func Clamp(s string) string {
	if len(s) <= MaxString {
		return s
	}
	cut := clampKeep
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	sum := sha256.Sum256([]byte(s))
	return s[:cut] + "#" + hex.EncodeToString(sum[:])
}
