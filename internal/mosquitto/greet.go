package mosquitto

import (
	"context"
	"errors"
	"io"
	"net"
	"time"
)

var (
	// helloPacket is a CONNECT of MQTT 5 with Clean Start, no client identifier and no keep-alive; byePacket a DISCONNECT.
	helloPacket = []byte{0x10, 13, 0, 4, 'M', 'Q', 'T', 'T', 5, 0x02, 0, 0, 0, 0, 0}
	byePacket   = []byte{0xE0, 0}
)

// greet connects and waits for an answer, whatever it is: a CONNACK, or the end of the connection where TLS is spoken. The kernel
// accepts connections before the server serves them, and Mosquitto 2.0.11 forgets a SIGTERM that comes between the two.
func greet(ctx context.Context, addr string) error {
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		err := greetOnce(ctx, addr)
		if err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return err
		}
	}
}

func greetOnce(ctx context.Context, addr string) (err error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp4", addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if _, err := conn.Write(helloPacket); err != nil {
		return err
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
	_, err = conn.Write(byePacket)
	return err
}
