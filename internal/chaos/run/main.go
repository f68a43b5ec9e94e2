// Command run is `make chaos`: see package chaos.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/settlemq/settle/internal/chaos"
	"github.com/settlemq/settle/internal/mosquitto"
)

func main() {
	if code, was := chaos.RunIfConsumer(); was {
		os.Exit(code)
	}
	seed := flag.Uint64("seed", 0, "of the plan; 0 draws one")
	duration := flag.Duration("duration", time.Minute, "for which there are faults, and longer until there were messages enough")
	messages := flag.Int("messages", 200_000, "that the server is to accept at least")
	out := flag.String("json", "", "file for the result with its plan")
	log := flag.String("log", "", "file for the consumers' log")
	journals := flag.String("journals", "", "folder for what the consumers told, packet by packet and call by call")
	plan := flag.Bool("plan", false, "print the plan and do nothing")
	flag.Parse()
	if *seed == 0 {
		*seed = 1 + rand.Uint64N(1<<32)
	}
	if *plan {
		for _, f := range chaos.Draw(*seed, *duration) {
			say("%s", f)
		}
		return
	}
	if err := run(*seed, *duration, *messages, *out, *log, *journals); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func run(seed uint64, duration time.Duration, messages int, out, log, journals string) error {
	consumers := io.Discard
	if log != "" {
		f, err := os.Create(log)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		consumers = f
	}
	say("seed %d: %s of faults, at least %d messages", seed, duration, messages)
	result, err := chaos.Run(chaos.Options{
		Seed: seed, Duration: duration, Messages: messages, Log: consumers, Journals: journals,
		Progress: func(text string) { say("%s", text) },
	})
	if err != nil {
		return err
	}
	if out != "" {
		text, err := json.MarshalIndent(result, "", "\t")
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(out), 0o750); err != nil {
			return err
		}
		if err := os.WriteFile(out, append(text, '\n'), 0o600); err != nil {
			return err
		}
	}
	say("")
	result.Table(os.Stdout, server())
	say("")
	if short := result.Shortfalls(chaos.Minute(messages, duration)); len(short) > 0 {
		for _, example := range result.Account.Examples {
			say("  %s", example)
		}
		return fmt.Errorf("seed %d falls short:\n  %s", seed, strings.Join(short, "\n  "))
	}
	say("all well")
	return nil
}

func say(format string, args ...any) { _, _ = fmt.Fprintf(os.Stdout, format+"\n", args...) }

// server is the version of Mosquitto.
func server() string {
	path, err := mosquitto.Find()
	if err != nil {
		return "no Mosquitto"
	}
	text, _ := exec.Command(path, "-h").Output() //nolint:gosec,noctx // it ends at once, with an error, and says its version
	version, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return version
}
