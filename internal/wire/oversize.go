package wire

import (
	"encoding/binary"
	"hash/maphash"
)

// perhapsOversize reports whether the frame at head is a PUBLISH whose payload may be above MaxPayload.
func (s *Scanner) perhapsOversize(remaining int) bool {
	return remaining > s.limits.MaxPayload && Type(s.buf[s.head]>>4) == PUBLISH
}

// readLong reads a PUBLISH that is longer than MaxPayload as a whole. What it is depends on the length of
// what stands before the payload, which is read step by step: topic, Packet Identifier, property length.
func (s *Scanner) readLong(header, total int) (Frame, error) {
	b, err := s.pull(nil, header+2, total)
	if err != nil {
		return Frame{}, err
	}
	bare := header + 2 + int(binary.BigEndian.Uint16(b[header:])) // where the property length stands
	if b[0]>>1&3 != 0 {
		bare += 2
	}
	head, length := bare, 0 // where the payload begins, and how long the properties are
	for size := 0; size == 0; {
		if head++; head > total {
			return Frame{}, malformed(PUBLISH, "ends before its properties")
		}
		if b, err = s.pull(b, head, total); err != nil {
			return Frame{}, err
		}
		if length, size = varint(b[bare:]); size < 0 {
			return Frame{}, malformed(PUBLISH, "has a bad property length")
		}
	}
	if head += length; head > total {
		return Frame{}, malformed(PUBLISH, "ends within its properties")
	}
	switch {
	case length > s.limits.MaxControl:
		f := Frame{Header: header, Oversize: total - head + length, Bare: true}
		return s.readPast(f, b[:bare], b[bare:], f.Oversize)
	case total-head > s.limits.MaxPayload:
		if b, err = s.pull(b, head, total); err != nil {
			return Frame{}, err
		}
		return s.readPast(Frame{Header: header, Oversize: total - head}, b, nil, total-head)
	}
	b, err = s.pull(b, total, total)
	return Frame{Bytes: b, Header: header}, err
}

// readPast completes f: it copies what is kept, reads past what is not, n bytes of the stream, and puts
// a digest of those and of what had been read before in their place.
func (s *Scanner) readPast(f Frame, kept, before []byte, n int) (Frame, error) {
	length := len(kept) + digestSize
	if f.Bare {
		length++ // a property length of 0
	}
	f.Bytes = make([]byte, length)
	copy(f.Bytes, kept)
	var hash maphash.Hash
	hash.SetSeed(seed)
	_, _ = hash.Write(before)
	for n > 0 {
		if s.head == s.tail {
			// What lies behind tail belongs to no frame yet, and serves to read into without keeping it.
			s.makeRoom()
			got, err := s.read(s.buf[s.tail:min(s.size, s.tail+n)])
			if err != nil {
				return Frame{}, unexpected(err)
			}
			_, _ = hash.Write(s.buf[s.tail : s.tail+got])
			n -= got
			continue
		}
		end := min(s.tail, s.head+n)
		_, _ = hash.Write(s.buf[s.head:end])
		n -= end - s.head
		s.head = end
	}
	binary.BigEndian.PutUint64(f.Bytes[length-digestSize:], hash.Sum64())
	return f, nil
}
