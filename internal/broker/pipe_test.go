package broker

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// What a pipe does, and net.Pipe does too.
func TestPipeIsLikeNetPipe(t *testing.T) {
	for name, pipe := range map[string]func() (net.Conn, net.Conn){"net": net.Pipe, "broker": Pipe} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := pipe()
				var buf [8]byte

				wrote := make(chan error, 2)
				writes := []string{"one", "two"}
				if name == "net" { // a Write that waits for another holds a mutex there, and a bubble waits for it for ever
					writes = writes[:1]
				}
				for _, p := range writes { // they do not run into each other, and wait until they are read
					go func() {
						_, err := a.Write([]byte(p))
						wrote <- err
					}()
					synctest.Wait()
				}
				if len(wrote) != 0 {
					t.Fatal("a Write did not wait")
				}
				for _, want := range []string{"on", "e", "tw", "o"}[:2*len(writes)] {
					if n, err := b.Read(buf[:2]); string(buf[:n]) != want || err != nil {
						t.Fatalf("%q %v, want %q", buf[:n], err, want)
					}
					synctest.Wait()
				}
				for range writes {
					if err := <-wrote; err != nil {
						t.Fatal(err)
					}
				}

				begin := time.Now()
				_ = b.SetReadDeadline(begin.Add(time.Second))
				if _, err := b.Read(buf[:]); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != time.Second {
					t.Fatalf("%v after %s", err, time.Since(begin))
				}
				_ = a.SetDeadline(begin.Add(3 * time.Second))
				_ = b.SetReadDeadline(time.Time{})
				go func() {
					<-time.After(time.Second)
					_, _ = b.Read(buf[:1])
				}()
				if n, err := a.Write([]byte("abc")); n != 1 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != 3*time.Second {
					t.Fatalf("%d %v after %s", n, err, time.Since(begin))
				}
				if _, err := a.Read(buf[:]); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatal(err)
				}
				_ = a.SetDeadline(time.Time{})

				var ne net.Error
				_ = a.SetReadDeadline(time.Now().Add(-1))
				if _, err := a.Read(buf[:]); !errors.As(err, &ne) || !ne.Timeout() {
					t.Fatal(err)
				}
				_ = a.SetReadDeadline(time.Time{})

				read := make(chan error, 1)
				go func() {
					_, err := a.Read(buf[:1])
					read <- err
				}()
				go func() {
					_, err := a.Write([]byte("x"))
					wrote <- err
				}()
				synctest.Wait()
				_ = a.Close()
				if err := <-read; err != io.ErrClosedPipe {
					t.Errorf("a Read during Close: %v", err)
				}
				if err := <-wrote; err != io.ErrClosedPipe {
					t.Errorf("a Write during Close: %v", err)
				}
				if _, err := b.Read(buf[:]); err != io.EOF {
					t.Errorf("a Read from a closed peer: %v", err)
				}
				if _, err := b.Write([]byte("x")); err != io.ErrClosedPipe {
					t.Errorf("a Write to a closed peer: %v", err)
				}
				if a.Close() != nil || b.Close() != nil || a.LocalAddr().String() != "pipe" || b.RemoteAddr().Network() != "pipe" {
					t.Error("Close, or the addresses")
				}
			})
		})
	}
}

func TestPipeClosesByHalves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Pipe()
		go func() {
			_, _ = a.Write([]byte("last"))
			_ = a.(interface{ CloseWrite() error }).CloseWrite()
		}()
		if all, err := io.ReadAll(b); !bytes.Equal(all, []byte("last")) || err != nil {
			t.Fatalf("%q %v", all, err)
		}
		go func() { _, _ = b.Write([]byte("back")) }()
		var buf [4]byte
		if n, err := io.ReadFull(a, buf[:]); n != 4 || err != nil {
			t.Fatal(n, err)
		}
		if _, err := a.Write([]byte("x")); err != io.ErrClosedPipe {
			t.Fatal(err)
		}
		_ = a.Close()
		_ = b.Close()
	})
}

// Nothing is lost between a reader that finds nothing and a writer that tells it of something.
func TestPipeNotifies(t *testing.T) {
	client, server := newPipe()
	got := make(chan byte, 1000)
	var in inbox
	server.in.notify = func() {
		go func() {
			for {
				n, some, err := server.in.tryRead(&in, 0)
				if !some {
					return
				}
				in.end += n
				for _, c := range in.bytes() {
					got <- c
				}
				in.start = in.end
				if err != nil {
					close(got)
					return
				}
			}
		}()
	}
	go func() {
		for i := range 10_000 {
			_, _ = client.Write([]byte{byte(i)})
		}
		_ = client.Close()
	}()
	n := 0
	for c := range got {
		if c != byte(n) {
			t.Fatalf("byte %d is %d", n, c)
		}
		n++
	}
	if n != 10_000 {
		t.Fatalf("%d bytes", n)
	}
}
