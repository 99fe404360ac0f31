package topics

import "net/url"

// RunKey is the record key of everything that belongs to one run (one ACS
// session of one tenant): pathEscape(tenant) + "/" + session.
func RunKey(tenant, session string) string {
	return url.PathEscape(tenant) + "/" + session
}

// AppendRunKey appends the run key to b.
func AppendRunKey(b []byte, tenant, session string) []byte {
	b = append(append(b, url.PathEscape(tenant)...), '/')
	return append(b, session...)
}

// Partition places a key as Kafka's default partitioner does:
// (murmur2(key) & 0x7fffffff) mod count. It is used with the configured count,
// never with live metadata, so that a key never moves.
func Partition(key []byte, count int32) int32 {
	return int32(murmur2(key)&0x7fffffff) % count
}

// murmur2 is the 32-bit MurmurHash 2 with the seed of Kafka's Java client.
func murmur2(b []byte) uint32 {
	const (
		seed uint32 = 0x9747b28c
		m    uint32 = 0x5bd1e995
		r           = 24
	)
	h := seed ^ uint32(len(b))
	for len(b) >= 4 {
		k := uint32(b[3])<<24 | uint32(b[2])<<16 | uint32(b[1])<<8 | uint32(b[0])
		b = b[4:]
		k *= m
		k ^= k >> r
		k *= m
		h *= m
		h ^= k
	}
	switch len(b) {
	case 3:
		h ^= uint32(b[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(b[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(b[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return h
}
