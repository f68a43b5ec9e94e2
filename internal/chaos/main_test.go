package chaos

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if code, was := RunIfConsumer(); was {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}
