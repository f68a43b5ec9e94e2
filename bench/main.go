package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/settlemq/settle/internal/mosquitto"
)

func main() {
	var (
		messages = flag.Int("messages", 100_000, "messages in the backlog")
		rounds   = flag.Int("rounds", 5, "times that each consumer runs")
		only     = flag.String("only", "", "run this consumer alone")
		least    = flag.Float64("least", 0, "fail if settle does not reach this multiple of paho, by the median")
		consumer = flag.String("consume", "", "internal: be this consumer")
		server   = flag.String("server", "", "internal: the server to consume from")
		profile  = flag.String("profile", "", "write a CPU profile of the consumer that -only names to this file")
	)
	flag.Parse()
	var err error
	if *consumer != "" {
		err = consume(*consumer, *server, *messages, *profile)
	} else {
		err = compare(*messages, *rounds, *only, *least, *profile)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// result is what one run of one consumer took.
type result struct {
	Messages int           `json:"messages"`
	Took     time.Duration `json:"took"`   // from the first delivery to the last
	CPU      time.Duration `json:"cpu"`    // of the process, user mode, in that time
	Mallocs  uint64        `json:"allocs"` // in that time
}

func (r result) rate() float64 { return float64(r.Messages) / r.Took.Seconds() }

func compare(messages, rounds int, only string, least float64, profile string) error {
	server, err := mosquitto.Start(mosquitto.Options{MaxQueued: mosquitto.NoLimit})
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()

	names := []string{"paho", "settle", "loop"}
	if only != "" {
		names = []string{only}
	}
	results := make(map[string][]result)
	for range rounds {
		for _, name := range names {
			if err := fill(context.Background(), server.URL(), name, messages); err != nil {
				return fmt.Errorf("fill the backlog of %s: %w", name, err)
			}
			r, err := run(name, server.URL(), messages, profile)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			results[name] = append(results[name], r)
		}
	}
	if err := show(names, results); err != nil {
		return err
	}
	if least > 0 && only == "" {
		if got := median(results["settle"]).rate() / median(results["paho"]).rate(); got < least {
			return fmt.Errorf("settle reached %.2f times paho: at least %.2f is asked for", got, least)
		}
	}
	return nil
}

func run(name, server string, messages int, profile string) (result, error) {
	self, err := os.Executable()
	if err != nil {
		return result{}, err
	}
	cmd := exec.Command(self, //nolint:gosec,noctx // it is this program, and ends by itself
		"-consume", name, "-server", server, "-messages", fmt.Sprint(messages), "-profile", profile)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return result{}, err
	}
	var r result
	if err := json.Unmarshal(out, &r); err != nil {
		return result{}, errors.Join(err, errors.New(strings.TrimSpace(string(out))))
	}
	return r, nil
}

// median is by rate.
func median(results []result) result {
	sorted := slices.SortedFunc(slices.Values(results), func(a, b result) int { return int(a.Took - b.Took) })
	return sorted[len(sorted)/2]
}

func show(names []string, results map[string][]result) error {
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "consumer\tmedian msg/s\tslowest\tfastest\tuser µs/msg\tallocs/msg\ttimes paho\t")
	for _, name := range names {
		m := median(results[name])
		slow := slices.MaxFunc(results[name], func(a, b result) int { return int(a.Took - b.Took) })
		fast := slices.MinFunc(results[name], func(a, b result) int { return int(a.Took - b.Took) })
		times := "–"
		if paho := results["paho"]; paho != nil {
			times = fmt.Sprintf("%.2f", m.rate()/median(paho).rate())
		}
		_, _ = fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.0f\t%.2f\t%.1f\t%s\t\n", name, m.rate(), slow.rate(), fast.rate(),
			float64(m.CPU.Nanoseconds())/float64(m.Messages)/1000, float64(m.Mallocs)/float64(m.Messages), times)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Print(table.String())
	return err
}
