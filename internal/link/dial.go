package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/coder/websocket"
)

// maxStrays is how many dials that ignore their context may be under way at a time.
const maxStrays = 4

// login is what CONNECT says about who we are.
type login struct {
	username    string
	password    []byte
	hasUsername bool
	hasPassword bool
}

// dialled is what a dial has brought.
type dialled struct {
	conn  net.Conn
	login login
	err   error
}

// dial asks for credentials and opens the network connection, within DialTimeout, whether or not the user's functions
// mind their context: one that does not is left behind, and its connection closed when it comes.
func (l *Link) dial(ctx context.Context, server *url.URL) (net.Conn, login, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.cfg.DialTimeout,
		fmt.Errorf("no connection to %s within %s", redact(server), l.cfg.DialTimeout))
	defer cancel()
	select {
	case l.strays <- struct{}{}:
	default:
		<-ctx.Done() // no room for another; wait as long as a dial would
		return nil, login{}, fmt.Errorf("%w: %d dials ignore their context and have not returned", context.Cause(ctx), maxStrays)
	}
	result := make(chan dialled)
	go func() {
		defer func() { <-l.strays }()
		var d dialled
		if d.login, d.err = l.login(ctx, server); d.err == nil {
			d.conn, d.err = l.open(ctx, server)
		}
		select {
		case result <- d:
		case <-ctx.Done():
			if d.conn != nil {
				_ = d.conn.Close()
			}
		}
	}()
	select {
	case d := <-result:
		if d.err != nil && ctx.Err() != nil {
			d.err = context.Cause(ctx)
		}
		return d.conn, d.login, d.err
	case <-ctx.Done():
		return nil, login{}, context.Cause(ctx)
	}
}

// login asks for the credentials; without a function for it the URL's userinfo serves.
func (l *Link) login(ctx context.Context, server *url.URL) (login, error) {
	if l.cfg.Credentials != nil {
		username, password, err := l.cfg.Credentials(ctx)
		if err != nil {
			return login{}, fmt.Errorf("credentials: %w", err)
		}
		if len(username) > math.MaxUint16 || len(password) > math.MaxUint16 { // paho would cut them off in silence
			return login{}, errors.New("credentials: user name or password has more than 65,535 bytes")
		}
		return login{username: username, password: password, hasUsername: username != "", hasPassword: password != nil}, nil
	}
	if server.User == nil {
		return login{}, nil
	}
	password, hasPassword := server.User.Password()
	username := server.User.Username()
	return login{username: username, password: []byte(password), hasUsername: username != "", hasPassword: hasPassword}, nil
}

// open opens the network connection. The URL goes on without its userinfo, which so gets into no error and no header.
func (l *Link) open(ctx context.Context, server *url.URL) (net.Conn, error) {
	bare := *server
	bare.User = nil
	var (
		conn net.Conn
		err  error
	)
	if l.cfg.Dial != nil {
		conn, err = l.cfg.Dial(ctx, &bare)
	} else {
		conn, err = dialURL(ctx, &bare, l.cfg.TLS)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("dial %s: %w", redact(server), err)
	case conn == nil:
		return nil, fmt.Errorf("dial %s: the dial function returned neither connection nor error", redact(server))
	}
	return conn, nil
}

// dialURL opens the connection that a URL's scheme asks for.
func dialURL(ctx context.Context, server *url.URL, config *tls.Config) (net.Conn, error) {
	switch strings.ToLower(server.Scheme) {
	case "mqtt", "tcp":
		return new(net.Dialer).DialContext(ctx, "tcp", address(server, "1883"))
	case "mqtts", "tls", "ssl":
		return dialTLS(ctx, server, config)
	case "ws", "wss":
		return dialWebSocket(ctx, server, config)
	}
	return nil, fmt.Errorf("scheme %q is none of mqtt, tcp, mqtts, tls, ssl, ws, wss", server.Scheme)
}

func dialTLS(ctx context.Context, server *url.URL, config *tls.Config) (net.Conn, error) {
	dialer := tls.Dialer{Config: tlsConfig(server, config)}
	conn, err := dialer.DialContext(ctx, "tcp", address(server, "8883"))
	if err != nil {
		return nil, err
	}
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("crypto/tls dialled a %T", conn), conn.Close())
	}
	return tlsConn{secure}, nil
}

// tlsConn is closed at once: tls.Conn's Close waits up to five seconds to tell a peer that perhaps reads no more. CloseWrite
// has told it, where there was time for that.
type tlsConn struct{ *tls.Conn }

func (c tlsConn) Close() error { return c.NetConn().Close() }

// tlsConfig is the configuration for one dial.
func tlsConfig(server *url.URL, config *tls.Config) *tls.Config {
	if config == nil {
		config = new(tls.Config)
	}
	config = config.Clone()
	config.ClientSessionCache = nil // a resumed TLS session would go on with the certificate of the one before
	if config.ServerName == "" {
		config.ServerName = server.Hostname()
	}
	return config
}

// dialWebSocket opens a WebSocket with the subprotocol that the standard demands [MQTT-6.0.0-3].
func dialWebSocket(ctx context.Context, server *url.URL, config *tls.Config) (net.Conn, error) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: tlsConfig(server, config), DisableKeepAlives: true}
	ws, _, err := websocket.Dial(ctx, server.String(), &websocket.DialOptions{ //nolint:bodyclose // by Dial itself, or with ws
		HTTPClient:   &http.Client{Transport: transport},
		Subprotocols: []string{"mqtt"},
	})
	if err != nil {
		var quoting *url.Error // quotes the URL, whose query may hold a token
		if errors.As(err, &quoting) {
			err = quoting.Err
		}
		return nil, err
	}
	if ws.Subprotocol() != "mqtt" {
		return nil, errors.Join(errors.New(`the server does not speak the WebSocket subprotocol "mqtt"`), ws.CloseNow())
	}
	return wsConn{websocket.NetConn(context.Background(), ws, websocket.MessageBinary), ws}, nil
}

// wsConn is closed at once: NetConn's Close waits up to ten seconds for the peer's closing handshake. After a DISCONNECT it
// is the server that closes.
type wsConn struct {
	net.Conn
	ws *websocket.Conn
}

func (c wsConn) Close() error { return c.ws.CloseNow() }

func address(server *url.URL, port string) string {
	if p := server.Port(); p != "" {
		port = p
	}
	return net.JoinHostPort(server.Hostname(), port)
}

// redact is the URL as logs and errors show it: without userinfo, and without a query, which may hold a token.
func redact(server *url.URL) string {
	bare := url.URL{Scheme: server.Scheme, Host: server.Host, Path: server.Path}
	return bare.String()
}
