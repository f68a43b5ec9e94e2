package settle

import (
	"encoding/binary"

	"github.com/settlemq/settle/internal/wire"
)

// bareDelivery is a delivery of a route of that name, as if a server had sent it.
func bareDelivery(name, contentType string, payload []byte) *Delivery {
	a := new(arrival)
	a.Publish.ContentType, a.Publish.Payload = contentType, payload
	d := new(Delivery)
	d.init(a, &route{routeSpec: &routeSpec{name: name}}, 1)
	return d
}

// keyedDelivery is a delivery with a partition key in its user properties.
func keyedDelivery(topic, key string) *Delivery {
	text := func(b []byte, s string) []byte {
		return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
	}
	property := text(text([]byte{0x26}, PartitionKeyHeader), key)
	body := append(text(nil, topic), byte(len(property)))
	body = append(body, property...)
	a := new(arrival)
	if err := wire.ParsePublish(wire.Frame{Bytes: append([]byte{0x30, byte(len(body))}, body...), Header: 2}, &a.Publish); err != nil {
		panic(err)
	}
	d := new(Delivery)
	d.init(a, &route{routeSpec: new(routeSpec)}, 1)
	return d
}
