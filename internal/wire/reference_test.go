package wire

import (
	"encoding/binary"
	"hash/maphash"
	"io"
	"slices"
)

// reference reads all frames out of a stream that is there as a whole: the Scanner's specification, in
// the plainest form.
func reference(data []byte, l Limits) (frames []Frame, err error) {
	if l.MaxPayload == 0 {
		l.MaxPayload = maxVarint
	}
	if l.MaxControl == 0 {
		l.MaxControl = maxVarint + 5
	}
	for len(data) > 0 {
		f, n, err := referenceFrame(data, l)
		if err != nil {
			return frames, err
		}
		frames = append(frames, f)
		data = data[n:]
	}
	return frames, io.EOF
}

// referenceFrame returns the frame that data begins with, and its length on the stream.
func referenceFrame(data []byte, l Limits) (Frame, int, error) {
	t := Type(data[0] >> 4)
	remaining, size := varint(data[1:])
	if size < 0 {
		return Frame{}, 0, malformed(t, "has a bad remaining length")
	}
	if size == 0 {
		return Frame{}, 0, io.ErrUnexpectedEOF
	}
	header, total := 1+size, 1+size+remaining
	if t != PUBLISH && total > l.MaxControl {
		return Frame{}, 0, &Error{CodeTooLarge, t.String() + " is larger than the client accepts"}
	}
	there := data[:min(total, len(data))]
	if t == PUBLISH && remaining > l.MaxPayload {
		if f, err := referenceOversize(there, header, total, l); f.Oversize > 0 || err != nil {
			return f, total, err
		}
	}
	if len(there) < total {
		return Frame{}, 0, io.ErrUnexpectedEOF
	}
	return Frame{Bytes: there, Header: header}, total, nil
}

// referenceOversize returns a zero Frame for a PUBLISH that is not oversize after all.
func referenceOversize(there []byte, header, total int, l Limits) (Frame, error) {
	if len(there) < header+2 {
		return Frame{}, referenceShort(total, header+2)
	}
	at := header + 2 + int(binary.BigEndian.Uint16(there[header:]))
	if there[0]&6 != 0 {
		at += 2
	}
	if len(there) <= at {
		return Frame{}, referenceShort(total, at+1)
	}
	length, size := varint(there[at:])
	switch {
	case size < 0:
		return Frame{}, malformed(PUBLISH, "has a bad property length")
	case size == 0:
		return Frame{}, referenceShort(total, len(there)+1)
	case at+size+length > total:
		return Frame{}, malformed(PUBLISH, "ends within its properties")
	}
	head := at + size + length
	bare := length > l.MaxControl
	if !bare && total-head <= l.MaxPayload {
		return Frame{}, nil
	}
	if len(there) < total {
		return Frame{}, io.ErrUnexpectedEOF
	}
	f := Frame{Header: header, Oversize: total - head}
	kept, past := there[:head], there[head:]
	if bare {
		f.Bare, f.Oversize = true, total-at-size
		kept, past = append(slices.Clone(there[:at]), 0), there[at:]
	}
	f.Bytes = binary.BigEndian.AppendUint64(slices.Clone(kept), maphash.Bytes(seed, past))
	return f, nil
}

// referenceShort is why a frame of which not enough is there does not have the byte before need.
func referenceShort(total, need int) error {
	if need > total {
		return malformed(PUBLISH, "ends before its properties")
	}
	return io.ErrUnexpectedEOF
}
