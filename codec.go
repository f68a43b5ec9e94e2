package settle

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Codec turns values into payloads and back. Which one serves a message is told by the message's content type. Give an
// app its codecs in Config.Codecs; [JSON] is the default.
//
// All methods are called from many goroutines at once.
type Codec interface {
	// ContentType is the content type that the codec stands for, such as "application/cbor", without parameters. It
	// never changes.
	ContentType() string
	// Marshal returns the payload of v.
	Marshal(v any) ([]byte, error)
	// Unmarshal decodes data into v, a pointer that is not nil, to a zero value. It must not change data, and may keep
	// it. Its error reaches [OnDecodeFailure] and the dead letter never quotes it.
	Unmarshal(data []byte, v any) error
}

// JSON is the codec of "application/json", on encoding/json. It also serves every content type that ends in
// "+json", unless another codec claims that one by name.
func JSON() Codec { return jsonCodec{} }

type jsonCodec struct{}

const jsonType = "application/json"

func (jsonCodec) ContentType() string                { return jsonType }
func (jsonCodec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (jsonCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// codecs finds a codec by content type. It is immutable.
type codecs struct {
	first  Codec
	byType map[string]Codec
	json   Codec // serves "+json", nil if there is none
}

// newCodecs takes what Config.Codecs holds; nil means JSON. Elements that validate refuses are passed over.
func newCodecs(list []Codec) codecs {
	if len(list) == 0 {
		list = []Codec{JSON()}
	}
	c := codecs{byType: make(map[string]Codec, len(list))}
	for _, codec := range list {
		if codec == nil {
			continue
		}
		if c.first == nil {
			c.first = codec
		}
		key := mediaType(codec.ContentType())
		c.byType[key] = codec
		if key == jsonType {
			c.json = codec
		}
	}
	return c
}

// forContent returns the codec for a content type; for "" that of encoding, and if that is "" too, the first.
func (c *codecs) forContent(contentType, encoding string) (Codec, error) {
	if contentType == "" {
		contentType = encoding
	}
	if contentType == "" {
		return c.first, nil
	}
	if codec, ok := c.byType[contentType]; ok { // as nearly all publishers write it: no copy
		return codec, nil
	}
	key := mediaType(contentType)
	if codec, ok := c.byType[key]; ok {
		return codec, nil
	}
	if c.json != nil && strings.HasSuffix(key, "+json") {
		return c.json, nil
	}
	return nil, fmt.Errorf("no codec for the content type %q", clip(contentType))
}

// mediaType is a content type without its parameters, in the one spelling that is compared.
func mediaType(contentType string) string {
	contentType, _, _ = strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(contentType))
}

var (
	bytesType = reflect.TypeFor[[]byte]()
	byteType  = reflect.TypeFor[byte]()

	jsonUnmarshaler   = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler   = reflect.TypeFor[encoding.TextUnmarshaler]()
	binaryUnmarshaler = reflect.TypeFor[encoding.BinaryUnmarshaler]()
	jsonMarshaler     = reflect.TypeFor[json.Marshaler]()
	textMarshaler     = reflect.TypeFor[encoding.TextMarshaler]()
	binaryMarshaler   = reflect.TypeFor[encoding.BinaryMarshaler]()
)

// rawType tells whether payloads are handed to a handler of type t as they are: a byte slice, named or not, that does
// not unmarshal itself.
func rawType(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem() == byteType && !implementsAny(reflect.PointerTo(t), jsonUnmarshaler, textUnmarshaler, binaryUnmarshaler)
}

func implementsAny(t reflect.Type, interfaces ...reflect.Type) bool {
	return slices.ContainsFunc(interfaces, t.Implements)
}

// decoderFor returns what decodes a delivery into a T; which way is found out here, once a route. Decoding raw bytes
// neither copies nor allocates: the T is the payload itself. The error is a *DecodeError, and *into is then the zero T.
func decoderFor[T any]() func(c *codecs, spec *routeSpec, d *Delivery, into *T) error {
	t := reflect.TypeFor[T]()
	switch {
	case t == bytesType:
		return func(_ *codecs, _ *routeSpec, d *Delivery, into *T) error {
			*any(into).(*[]byte) = d.Payload() //nolint:forcetypeassert // the case says so
			return nil
		}
	case rawType(t):
		return func(_ *codecs, _ *routeSpec, d *Delivery, into *T) error {
			reflect.ValueOf(into).Elem().SetBytes(d.Payload())
			return nil
		}
	}
	pointer := t.Kind() == reflect.Pointer
	return func(c *codecs, spec *routeSpec, d *Delivery, into *T) error {
		var zero T
		*into = zero
		payload := d.Payload()
		if len(payload) == 0 {
			if spec.allowEmpty {
				return nil
			}
			return decodeError(d, t, decodeFault("the payload is empty: AllowEmpty takes it for the zero value"))
		}
		codec, err := c.forContent(d.ContentType(), spec.encoding)
		if err != nil {
			return decodeError(d, t, decodeFault(err.Error()))
		}
		if err := codec.Unmarshal(payload, into); err != nil {
			*into = zero
			return decodeError(d, t, err)
		}
		if pointer && reflect.ValueOf(into).Elem().IsNil() {
			return decodeError(d, t, decodeFault("it decodes to nothing, as JSON null does"))
		}
		return nil
	}
}

func decodeError(d *Delivery, t reflect.Type, err error) error {
	return &DecodeError{Delivery: d, ContentType: d.ContentType(), Type: t.String(), Err: err}
}

// encodeValue makes the payload of v, and the content type to send along. nil is an empty payload. Byte slices go as
// they are, labelled only where encoding is not "".
func encodeValue(c *codecs, encoding string, v any) (payload []byte, contentType string, err error) {
	switch v := v.(type) {
	case nil:
		return nil, encoding, nil
	case []byte:
		return v, encoding, nil
	}
	if t := reflect.TypeOf(v); t.Kind() == reflect.Slice && t.Elem() == byteType &&
		!implementsAny(reflect.PointerTo(t), jsonMarshaler, textMarshaler, binaryMarshaler) {
		return reflect.ValueOf(v).Bytes(), encoding, nil
	}
	codec, err := c.forContent(encoding, "")
	if err != nil {
		return nil, "", messageFault(err.Error() + ": name one of Config.Codecs with Encoding, or publish bytes")
	}
	payload, err = codec.Marshal(v)
	if err != nil {
		return nil, "", err
	}
	if encoding != "" {
		return payload, encoding, nil
	}
	return payload, codec.ContentType(), nil
}

func typeName(v any) string {
	if v == nil {
		return ""
	}
	return reflect.TypeOf(v).String()
}
