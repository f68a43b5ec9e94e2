package mosquitto

import (
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// NoLimit lifts a limit of Options that is a number.
const NoLimit = -1

// Options say how the server is configured. The zero Options are a server that keeps nothing over a restart, lets everybody in, and
// has Mosquitto's own limits.
type Options struct {
	// Port on 127.0.0.1. Zero takes a free one.
	Port int

	// Dir is the server's folder, which must exist and is left behind. Empty makes a temporary one, which Close removes.
	Dir string

	// Persistence keeps sessions, their messages and retained messages in Dir over StopCleanly and Restart. What a Kill leaves is
	// what was saved last: see SaveEachChange. Mosquitto 2.0.11 never saves a session that was last connected with Clean Start,
	// whatever its Session Expiry Interval.
	Persistence bool

	// SaveEachChange saves as soon as anything has changed instead of every 30 minutes, so that a Kill loses next to nothing.
	// Slow, and of no effect without Persistence.
	SaveEachChange bool

	// MaxInflight is max_inflight_messages: how many messages of QoS 1 and 2 may be unacknowledged to a client that sends no Receive
	// Maximum. Zero is the server's default (20); NoLimit lifts it.
	MaxInflight int

	// MaxQueued is max_queued_messages: how many messages of QoS 1 and 2 are kept for a client beyond those in flight; more are
	// dropped, the newest first. Zero is the server's default (1000); NoLimit lifts it.
	MaxQueued int

	// Users are let in by these passwords. Any user at all shuts out who gives none, unless AllowAnonymous.
	Users map[string]string

	// AllowAnonymous lets in who gives no user name, even if there are Users.
	AllowAnonymous bool

	// Lines are added to the end of the configuration as they are; those that belong to a listener belong to that of Port.
	Lines []string
}

const (
	configFile   = "mosquitto.conf"
	passwordFile = "passwords"
)

// write puts the configuration and the password file into dir.
func (o Options) write(dir string, port int) error {
	if len(o.Users) > 0 {
		entries, err := passwords(o.Users)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, passwordFile), []byte(entries), 0o600); err != nil {
			return fmt.Errorf("mosquitto: password file: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, configFile), []byte(o.config(dir, port, os.Geteuid() == 0)), 0o600); err != nil {
		return fmt.Errorf("mosquitto: configuration: %w", err)
	}
	return nil
}

func (o Options) config(dir string, port int, root bool) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	if root {
		// Otherwise it becomes the user mosquitto, who cannot write to dir, and forgets that it is to die with its parent.
		line("user root")
	}
	line("log_dest stderr")
	line("allow_anonymous %t", o.AllowAnonymous || len(o.Users) == 0)
	if len(o.Users) > 0 {
		line("password_file %s", filepath.Join(dir, passwordFile))
	}
	line("persistence %t", o.Persistence)
	if o.Persistence {
		line("persistence_location %s/", dir)
		if o.SaveEachChange {
			line("autosave_on_changes true")
			line("autosave_interval 1")
		}
	}
	limit := func(name string, n int) {
		switch {
		case n > 0:
			line("%s %d", name, n)
		case n < 0:
			line("%s 0", name)
		}
	}
	limit("max_inflight_messages", o.MaxInflight)
	limit("max_queued_messages", o.MaxQueued)
	line("listener %d 127.0.0.1", port)
	for _, l := range o.Lines {
		line("%s", l)
	}
	return b.String()
}

// passwords encodes users as mosquitto_passwd does ($7$, PBKDF2 with SHA-512). That tool would take a password on its command line,
// where every user of the machine can read it.
func passwords(users map[string]string) (string, error) {
	const (
		iterations = 101 // the tool's own number
		saltSize   = 12
	)
	var b strings.Builder
	for _, user := range slices.Sorted(maps.Keys(users)) {
		if user == "" || strings.ContainsAny(user, ":\r\n") {
			return "", fmt.Errorf("mosquitto: user name %q: must not be empty nor hold a colon or a line break", user)
		}
		salt := make([]byte, saltSize)
		if _, err := rand.Read(salt); err != nil {
			return "", fmt.Errorf("mosquitto: salt of a password: %w", err)
		}
		hash, err := pbkdf2.Key(sha512.New, users[user], salt, iterations, sha512.Size)
		if err != nil {
			return "", fmt.Errorf("mosquitto: password of user %q: %w", user, err)
		}
		fmt.Fprintf(&b, "%s:$7$%d$%s$%s\n", user, iterations, base64.StdEncoding.EncodeToString(salt), base64.StdEncoding.EncodeToString(hash))
	}
	return b.String(), nil
}
