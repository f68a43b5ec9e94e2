package settle

// fakeCodec stands for a content type and marks what it encoded.
type fakeCodec string

func (c fakeCodec) ContentType() string         { return string(c) }
func (c fakeCodec) Marshal(any) ([]byte, error) { return []byte(c), nil }
func (c fakeCodec) Unmarshal([]byte, any) error { return nil }

type pointerCodec struct{ fakeCodec }
