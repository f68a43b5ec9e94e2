package wire

import (
	"errors"
	"io"
)

// Limits bound what a Scanner keeps in memory.
type Limits struct {
	// MaxPayload is the largest payload of a PUBLISH in bytes. A larger one is read past and never
	// buffered: the frame comes out with Oversize set. 0: what the protocol allows, 256 MiB.
	MaxPayload int
	// MaxControl is the largest frame of any other type in bytes; a larger one is an Error 0x95. It also
	// bounds the properties of a PUBLISH that is larger than MaxPayload as a whole: longer ones are read
	// past together with the payload, and the frame is Bare. So a PUBLISH takes MaxPayload, MaxControl
	// and 64 KiB for its topic at most. 0: what the protocol allows.
	MaxControl int
	// Chunk is the size in bytes of the buffers that frames are cut out of. A buffer that is used up is
	// replaced by a new one and never used again, so frames may be kept; one that is kept keeps its whole
	// chunk. Frames larger than a chunk get memory of their own. Chunks have 512 bytes at least.
	//
	// 0: each frame gets memory of its own, exactly as large as it is. This is for a flow whose frames
	// are kept for long, a few of them here and there.
	Chunk int
}

const (
	minChunk     = 512
	stagingSize  = 16 << 10 // of the reused buffer of a Scanner without chunks
	maxRoom      = 4 << 10
	firstStep    = 32 << 10 // of a buffer that grows with the bytes that come
	maxEmptyRead = 100      // like bufio
)

// Scanner cuts a stream into frames. It is for one goroutine.
type Scanner struct {
	r      io.Reader
	limits Limits
	shared bool // frames alias buf; else buf is reused and frames are copied out of it
	size   int  // of buf
	room   int  // free space below which buf is turned over before the next read

	// buf[head:tail] has been read and not been cut. It is allocated with the first read. If shared, what
	// lies before tail is never written again.
	buf        []byte
	head, tail int

	pending error // from the reader, with bytes that come first
	failed  error // has been returned; there is nothing after it
}

// NewScanner returns a Scanner that reads from r. It reads as much as r gives, into the space that it
// has, and so may have read further than the frame that it returned.
func NewScanner(r io.Reader, l Limits) *Scanner {
	if l.MaxPayload <= 0 {
		l.MaxPayload = maxVarint
	}
	if l.MaxControl <= 0 {
		l.MaxControl = maxVarint + 5
	}
	s := &Scanner{r: r, limits: l, shared: l.Chunk > 0, size: stagingSize}
	if s.shared {
		s.size = max(l.Chunk, minChunk)
	}
	s.room = min(maxRoom, s.size/4)
	return s
}

// Next returns the next frame. It returns the reader's error as it comes, after the frames that came
// before it: io.EOF between two frames and io.ErrUnexpectedEOF within one; and an [*Error] where the
// stream is no MQTT. After an error it returns that error for ever, for the stream has lost its step.
//
// Of what a frame holds Next knows its length only: see [ParsePublish] and [CheckControl].
func (s *Scanner) Next() (Frame, error) {
	if s.failed != nil {
		return Frame{}, s.failed
	}
	f, err := s.next()
	if err != nil {
		s.failed = err
		return Frame{}, err
	}
	return f, nil
}

func (s *Scanner) next() (Frame, error) {
	for {
		header, total, wrong := s.measure()
		switch {
		case wrong != nil:
			return Frame{}, wrong
		case header == 0:
		case s.perhapsOversize(total - header):
			return s.readLong(header, total)
		case total > s.size:
			b, err := s.pull(nil, total, total)
			return Frame{Bytes: b, Header: header}, err
		case s.tail-s.head >= total:
			return s.cut(header, total), nil
		}
		if err := s.fill(); err != nil {
			if errors.Is(err, io.EOF) && s.head < s.tail {
				err = io.ErrUnexpectedEOF
			}
			return Frame{}, err
		}
	}
}

// Buffered reports whether a whole frame is in memory, or the certainty that what follows is none: Next
// will not touch the reader.
func (s *Scanner) Buffered() bool {
	if s.failed != nil {
		return false
	}
	header, total, wrong := s.measure()
	return wrong != nil || header > 0 && s.tail-s.head >= total
}

// measure returns the lengths of the fixed header and of the whole frame at head; 0 while they are not
// known.
func (s *Scanner) measure() (header, total int, wrong *Error) {
	b := s.buf[s.head:s.tail]
	if len(b) < 2 {
		return 0, 0, nil
	}
	remaining, size := varint(b[1:])
	if size < 0 {
		return 0, 0, malformed(Type(b[0]>>4), "has a bad remaining length")
	}
	if size == 0 {
		return 0, 0, nil
	}
	header, total = 1+size, 1+size+remaining
	if total > s.limits.MaxControl && Type(b[0]>>4) != PUBLISH {
		return 0, 0, &Error{Code: CodeTooLarge, Reason: Type(b[0]>>4).String() + " is larger than the client accepts"}
	}
	return header, total, nil
}

// cut takes the frame at head, all of which is there.
func (s *Scanner) cut(header, total int) Frame {
	end := s.head + total
	b := s.buf[s.head:end:end]
	s.head = end
	if !s.shared {
		b = append(make([]byte, 0, total), b...)
	}
	return Frame{Bytes: b, Header: header}
}

// fill reads once into buf, after making room. The frame at head fits into buf.
func (s *Scanner) fill() error {
	s.makeRoom()
	n, err := s.read(s.buf[s.tail:])
	s.tail += n
	return err
}

// makeRoom sees to it that there is space to read into: what is not cut yet moves to the start of a new
// buffer where little space is left, or of the same one where no frame aliases it.
func (s *Scanner) makeRoom() {
	switch {
	case s.buf == nil:
		s.buf = make([]byte, s.size)
		return
	case s.head == 0, s.shared && s.size-s.tail >= s.room:
		return
	}
	old := s.buf[s.head:s.tail]
	if s.shared {
		s.buf = make([]byte, s.size)
	}
	s.head, s.tail = 0, copy(s.buf, old)
}

// pull extends own to n bytes of the stream, first out of buf, then from the reader. Its capacity grows
// with the bytes that have come, to limit at most.
func (s *Scanner) pull(own []byte, n, limit int) ([]byte, error) {
	for len(own) < n {
		if len(own) == cap(own) {
			grown := make([]byte, len(own), min(limit, max(2*cap(own), firstStep)))
			copy(grown, own)
			own = grown
		}
		free := own[len(own):min(n, cap(own))]
		if s.head < s.tail {
			moved := copy(free, s.buf[s.head:s.tail])
			s.head += moved
			own = own[:len(own)+moved]
			continue
		}
		got, err := s.read(free)
		own = own[:len(own)+got]
		if err != nil {
			return nil, unexpected(err)
		}
	}
	return own, nil
}

// read reads at least one byte into p, or returns an error and none.
func (s *Scanner) read(p []byte) (int, error) {
	if s.pending != nil {
		return 0, s.pending
	}
	for range maxEmptyRead {
		n, err := s.r.Read(p)
		if n > 0 {
			s.pending = err
			return n, nil
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, io.ErrNoProgress
}

// unexpected is err as it is to be told within a frame.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
