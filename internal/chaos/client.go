package chaos

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"time"

	"github.com/eclipse/paho.golang/packets"
)

// patience is how long the harness waits for what must come.
const patience = 30 * time.Second

// client is a connection of the harness itself, without a proxy and without Settle: who audits should not use what is audited.
type client struct {
	conn net.Conn
	in   *bufio.Reader
	out  *bufio.Writer
}

// connect opens a session: a new one that ends with its connection, or one that lasts.
func connect(ctx context.Context, addr, clientID string, lasting bool) (*client, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &client{conn: conn, in: bufio.NewReaderSize(conn, 64<<10), out: bufio.NewWriterSize(conn, 64<<10)}
	hello := &packets.Connect{ProtocolName: "MQTT", ProtocolVersion: 5, CleanStart: !lasting, ClientID: clientID, Properties: &packets.Properties{}}
	if lasting {
		hour := uint32(86_400)
		hello.Properties.SessionExpiryInterval = &hour
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	answer, err := c.ask(hello)
	if err == nil {
		if ack, ok := answer.Content.(*packets.Connack); !ok || ack.ReasonCode != 0 {
			err = fmt.Errorf("%s was refused: %v", clientID, answer)
		}
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

// ask sends a packet and reads one.
func (c *client) ask(p packets.Packet) (*packets.ControlPacket, error) {
	if err := c.send(p); err != nil {
		return nil, err
	}
	if err := c.out.Flush(); err != nil {
		return nil, err
	}
	return packets.ReadPacket(c.in)
}

func (c *client) send(p packets.Packet) error {
	_, err := p.WriteTo(c.out)
	return err
}
