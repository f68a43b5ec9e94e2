package link

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"github.com/settlemq/settle/internal/broker/brokertest"
)

// certificate makes a self-signed certificate for localhost.
func certificate(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func pool(t *testing.T, c tls.Certificate) *x509.CertPool {
	t.Helper()
	leaf, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	p := x509.NewCertPool()
	p.AddCert(leaf)
	return p
}

// accepted passes connections on from a listener.
func accepted(t *testing.T, listener net.Listener) <-chan net.Conn {
	t.Helper()
	conns := make(chan net.Conn)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			conns <- c
		}
	}()
	t.Cleanup(func() { _ = listener.Close(); <-done })
	return conns
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func take(t *testing.T, conns <-chan net.Conn) *brokertest.Conn {
	t.Helper()
	select {
	case c := <-conns:
		return brokertest.NewServer(t).On(c)
	case <-time.After(10 * time.Second):
		t.Fatal("nobody has dialled")
		return nil
	}
}

// Every scheme over a real socket: handshake, a delivery, its acknowledgement, a publish, and the orderly end.
func TestSchemes(t *testing.T) {
	own := certificate(t, "server")
	tests := []struct {
		scheme string
		serve  func(*testing.T) (port string, conns <-chan net.Conn)
	}{
		{"mqtt", serveTCP}, {"tcp", serveTCP},
		{"mqtts", serveTLS(own)}, {"tls", serveTLS(own)}, {"ssl", serveTLS(own)},
		{"ws", serveWebSocket(nil)}, {"wss", serveWebSocket(&own)},
	}
	for _, test := range tests {
		t.Run(test.scheme, func(t *testing.T) {
			port, conns := test.serve(t)
			h := prepare(t, func(c *Config) {
				c.Dial = nil
				c.Servers = []*url.URL{mustURL(test.scheme + "://user:secret@localhost:" + port + "/mqtt?token=secret")}
				c.TLS = &tls.Config{RootCAs: pool(t, own), MinVersion: tls.VersionTLS12}
			})
			ctx, cancel := within(10 * time.Second)
			defer cancel()
			go func() { h.done <- h.Run(context.Background()) }()
			c := take(t, conns)
			if connect := c.Handshake(false, 1); connect.Username != "user" || string(connect.Password) != "secret" {
				t.Errorf("CONNECT has %q and %q", connect.Username, connect.Password)
			}
			if err := h.WaitUp(ctx); err != nil {
				t.Fatal(err)
			}
			c.Send(brokertest.Publish("a/b", 1, 5, strings.Repeat("x", 10_000)))
			if ack := brokertest.Expect[*packets.Puback](c); ack.PacketID != 5 {
				t.Errorf("PUBACK for %d", ack.PacketID)
			}
			published := make(chan error, 1)
			go func() {
				_, err := h.Publish(ctx, &paho.Publish{Topic: "t", QoS: 1, Payload: []byte("hello")})
				published <- err
			}()
			p := brokertest.Expect[*packets.Publish](c)
			c.Send(puback(p.PacketID, 0))
			if err := <-published; err != nil {
				t.Error(err)
			}
			closed := make(chan error, 1)
			go func() { closed <- h.Close(ctx, nil) }()
			c.ExpectDisconnect()
			if test.scheme != "ws" && test.scheme != "wss" {
				c.ExpectEOF() // half closed: the server can still send
				c.Send(brokertest.Publish("a/b", 1, 6, "goes nowhere"))
			}
			_ = c.Close()
			if err := <-closed; err != nil {
				t.Error(err)
			}
			if err := <-h.done; err != nil {
				t.Error(err)
			}
			if seen := h.rec.seen(); slices.Contains(seen, "publish goes nowhere") || seen[len(seen)-1] != "end <nil>" {
				t.Errorf("the receiver saw %q", seen)
			}
			if log := h.log.String(); strings.Contains(log, "secret") || strings.Contains(log, "user") {
				t.Errorf("the log has secrets: %s", log)
			}
		})
	}
}

func serveTCP(t *testing.T) (string, <-chan net.Conn) {
	l := listen(t)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port, accepted(t, l)
}

func serveTLS(own tls.Certificate) func(*testing.T) (string, <-chan net.Conn) {
	return func(t *testing.T) (string, <-chan net.Conn) {
		l := listen(t)
		_, port, _ := net.SplitHostPort(l.Addr().String())
		return port, accepted(t, tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}))
	}
}

func serveWebSocket(own *tls.Certificate) func(*testing.T) (string, <-chan net.Conn) {
	return func(t *testing.T) (string, <-chan net.Conn) {
		conns := make(chan net.Conn)
		release := make(chan struct{})
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/mqtt" || r.Header.Get("Authorization") != "" {
				t.Errorf("request for %s with authorization %q", r.URL.Path, r.Header.Get("Authorization"))
			}
			ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"mqtt"}})
			if err != nil {
				t.Error(err)
				return
			}
			conns <- websocket.NetConn(context.Background(), ws, websocket.MessageBinary)
			<-release
		})
		s := httptest.NewUnstartedServer(handler)
		if own != nil {
			s.TLS = &tls.Config{Certificates: []tls.Certificate{*own}, MinVersion: tls.VersionTLS12}
			s.StartTLS()
		} else {
			s.Start()
		}
		t.Cleanup(func() { close(release); s.Close() })
		_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
		return port, conns
	}
}

func TestWebSocketWithoutSubprotocolIsRefused(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err == nil {
			_, _, err = ws.Read(context.Background())
			_ = ws.CloseNow()
		}
		if err == nil {
			t.Error("the client has sent something")
		}
	}))
	defer s.Close()
	ctx, cancel := within(10 * time.Second)
	defer cancel()
	_, err := dialURL(ctx, mustURL(strings.Replace(s.URL, "http", "ws", 1)), nil)
	if err == nil || !strings.Contains(err.Error(), "subprotocol") {
		t.Errorf("dial says %v", err)
	}
}

func TestUnknownSchemeIsAnError(t *testing.T) {
	_, err := dialURL(context.Background(), mustURL("http://localhost"), nil)
	if err == nil || !strings.Contains(err.Error(), `"http"`) {
		t.Errorf("dial says %v", err)
	}
}

func TestG6TheCertificateIsAskedForAtEachDial(t *testing.T) {
	own := certificate(t, "server")
	listener := tls.NewListener(listen(t), &tls.Config{
		Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12,
	})
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	conns := accepted(t, listener)
	asked := 0
	h := start(t, func(c *Config) {
		c.Dial = nil
		c.Servers = []*url.URL{mustURL("mqtts://localhost:" + port)}
		c.TLS = &tls.Config{
			RootCAs: pool(t, own), MinVersion: tls.VersionTLS12,
			ClientSessionCache: tls.NewLRUClientSessionCache(1), // a resumed session would keep the old certificate
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				asked++
				client := certificate(t, fmt.Sprintf("client %d", asked))
				return &client, nil
			},
		}
	})
	defer h.stop()
	for i := range 3 {
		c := take(t, conns)
		c.Handshake(false, 1)
		secure, ok := c.NetConn().(*tls.Conn)
		if !ok {
			t.Fatalf("a %T", c.NetConn())
		}
		name := secure.ConnectionState().PeerCertificates[0].Subject.CommonName
		if want := fmt.Sprintf("client %d", i+1); name != want {
			t.Errorf("dial %d used the certificate of %s", i+1, name)
		}
		_ = c.Close()
	}
}

func TestG3CredentialsAreAskedForAgainEachTime(t *testing.T) {
	in(t, func(t *testing.T) {
		asked := 0
		var waits []time.Duration
		h := start(t, func(c *Config) {
			c.Credentials = func(context.Context) (string, []byte, error) {
				asked++
				if asked == 3 {
					return "", nil, errors.New("the vault is sealed")
				}
				return "user", fmt.Appendf(nil, "password %d", asked), nil
			}
			c.OnDown = func(_ error, d time.Duration) { waits = append(waits, d) }
		})
		defer h.stop()
		for _, want := range []string{"password 1", "password 2", "password 4", "password 5"} {
			c := h.server.Accept()
			connect := brokertest.Expect[*packets.Connect](c)
			if string(connect.Password) != want || connect.Username != "user" || !connect.UsernameFlag || !connect.PasswordFlag {
				t.Errorf("CONNECT has %q, want %q", connect.Password, want)
			}
			c.Send(&packets.Connack{ReasonCode: 0x86, Properties: &packets.Properties{ReasonString: "wrong"}})
			_ = c.Close()
			var refused *ConnectError
			pass(time.Millisecond)
			if err := h.Status().LastError; !errors.As(err, &refused) || refused.Code != 0x86 || refused.Reason != "wrong" {
				t.Errorf("the last error is %v", err)
			}
		}
		h.up(false)
		for i, w := range waits {
			nominal := minBackoff << i
			if w < nominal*4/5 || w > nominal*6/5 {
				t.Errorf("wait %d was %s", i, w)
			}
		}
		if log := h.log.String(); len(waits) != 5 || strings.Contains(log, "password 1") || !strings.Contains(log, "vault") {
			t.Errorf("%d waits; log %s", len(waits), log)
		}
	})
}

func TestI2SecretsStayOutOfErrorsAndLogs(t *testing.T) {
	in(t, func(t *testing.T) {
		var errs []error
		h := start(t, func(c *Config) {
			dial := c.Dial
			c.Servers = []*url.URL{mustURL("mqtt://alice:hunter2@one:1883")}
			c.Dial = func(ctx context.Context, u *url.URL) (net.Conn, error) {
				if len(errs) == 0 {
					return nil, fmt.Errorf("cannot reach %s", u)
				}
				return dial(ctx, u)
			}
			c.OnDown = func(err error, _ time.Duration) { errs = append(errs, err) }
		})
		c := h.server.Accept()
		if connect := brokertest.Expect[*packets.Connect](c); connect.Username != "alice" || string(connect.Password) != "hunter2" {
			t.Errorf("CONNECT has %q and %q", connect.Username, connect.Password)
		}
		c.Send(&packets.Connack{ReasonCode: 0x87})
		_ = c.Close()
		c = h.up(false)
		c.Send(brokertest.Publish("a/b", 1, 1, "hunter2"))
		brokertest.Expect[*packets.Puback](c)
		c.SendRaw([]byte{0x36, 3, 0, 0, 0})
		synctest.Wait()
		h.stop()
		all := h.log.String() + errors.Join(errs...).Error() + fmt.Sprintf("%+v", h.Status())
		if strings.Contains(all, "hunter2") || strings.Contains(all, "alice") {
			t.Errorf("secrets in: %s", all)
		}
	})
}
