package settle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

func TestErrorTexts(t *testing.T) {
	d := bareDelivery("usage", "application/json", []byte(`{"secret":1}`))
	syntax := json.Unmarshal([]byte(`{"secret"`), new(any))
	typ := json.Unmarshal([]byte(`"secret"`), new(int))
	for _, c := range []struct {
		err  error
		want string
	}{
		{&ConfigError{"ClientID", nil, "is missing"}, "settle: ClientID: is missing"},
		{&ConfigError{"Will.Topic", "a/+", "has a wildcard"}, `settle: Will.Topic: "a/+": has a wildcard`},
		{&ConfigError{"KeepAlive", 30 * time.Nanosecond, "is short"}, "settle: KeepAlive: 30ns: is short"},
		{&DecodeError{d, "application/json", "int", syntax}, `settle: route "usage": a payload of 12 bytes (content type "application/json") does not decode as int: no JSON at byte 9`},
		{&DecodeError{d, "", "int", typ}, `settle: route "usage": a payload of 12 bytes does not decode as int: another JSON type than wanted at byte 8`},
		{&DecodeError{d, "", "int", errors.New("secret")}, `settle: route "usage": a payload of 12 bytes does not decode as int`},
		{&DecodeError{d, "", "int", decodeFault("it is ours")}, `settle: route "usage": a payload of 12 bytes does not decode as int: it is ours`},
		{&OversizeError{d, 2000, 1000}, `settle: route "usage": a payload of 2000 bytes exceeds MaxPayload, 1000 bytes`},
		{&PanicError{d, errors.New("secret"), nil}, `settle: route "usage": the handler panicked with a value of type *errors.errorString`},
		{&PanicError{d, "secret", nil}, `settle: route "usage": the handler panicked with a value of type string`},
		{&PanicError{d, nil, nil}, `settle: route "usage": the handler called runtime.Goexit`},
		{&TimeoutError{d, time.Second}, `settle: route "usage": the handler did not return within 1s`},
		{&TimeoutError{nil, time.Second}, `settle: route "": the handler did not return within 1s`},
		{&ServerError{"a/b", 0x87, "ACL"}, `settle: the server refused the message to "a/b" with reason code 0x87: ACL`},
		{&ServerError{"a/b", 0x97, ""}, `settle: the server refused the message to "a/b" with reason code 0x97`},
		{&EncodeError{"a/b", "chan int", errors.New("secret")}, `settle: the message to "a/b": a chan int cannot be encoded`},
		{&EncodeError{"a/+", "", messageFault("the topic is wrong")}, `settle: the message to "a/+" cannot be sent: the topic is wrong`},
		{&DrainError{1, 2, 3, 4, 5, context.DeadlineExceeded}, "settle: stopped before all was settled: 1 running, 2 waiting, 3 held, 4 unconfirmed, 5 acknowledgements unsent: context deadline exceeded"},
		{&DrainError{}, "settle: stopped before all was settled: 0 running, 0 waiting, 0 held, 0 unconfirmed, 0 acknowledgements unsent"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
		if strings.Contains(c.err.Error(), "secret") {
			t.Errorf("it tells: %s", c.err)
		}
	}
}

func TestErrorsUnwrap(t *testing.T) {
	for _, err := range []error{
		&DecodeError{Err: io.EOF}, &PanicError{Value: io.EOF}, &EncodeError{Err: io.EOF}, &DrainError{Err: io.EOF},
		fmt.Errorf("outer: %w", &DecodeError{Err: io.EOF}),
	} {
		if !errors.Is(err, io.EOF) {
			t.Errorf("%T hides its inner error", err)
		}
	}
	if errors.Unwrap(&PanicError{Value: "text"}) != nil {
		t.Error("a panic's value that is no error was unwrapped")
	}
	timeout := &TimeoutError{}
	if !errors.Is(timeout, ErrHandlerTimeout) || !errors.Is(timeout, context.DeadlineExceeded) || errors.Is(timeout, ErrStopping) {
		t.Error("TimeoutError matches the wrong errors")
	}
}

// I2: no error repeats at length what a peer sent.
func TestI2ErrorsAreShort(t *testing.T) {
	long := strings.Repeat("x", 60_000)
	for _, err := range []error{
		&DecodeError{ContentType: long, Type: "int"},
		&DecodeError{Err: decodeFault("no codec for " + clip(long))},
		&ServerError{Topic: long, Reason: long},
		&EncodeError{Topic: long},
		&ConfigError{Field: "f", Value: long},
	} {
		if n := len(err.Error()); n > 600 {
			t.Errorf("%T: %d bytes", err, n)
		}
	}
}
