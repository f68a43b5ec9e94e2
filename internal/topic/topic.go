// Package topic knows topic names and topic filters (MQTT 5 section 4.7): which are well formed, which match, and which
// routes want a topic.
package topic

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// The texts of all errors complete a sentence that begins with the name of what was wrong: "the topic " + err.Error().
var (
	errEmpty    = errors.New("is empty")
	errUTF8     = errors.New("is not valid UTF-8")
	errNUL      = errors.New("contains U+0000, which MQTT does not allow")
	errWildcard = errors.New("contains a wildcard, '+' or '#', which only a topic filter may")
	errHash     = errors.New("has a '#' that is not the whole of its last level")
	errPlus     = errors.New("has a '+' that is not the whole of its level")
)

// ValidateString checks a UTF-8 Encoded String (MQTT 5 section 1.5.4): at most 65,535 bytes, valid UTF-8, no U+0000. It
// may be empty.
func ValidateString(s string) error {
	switch {
	case len(s) > math.MaxUint16:
		return fmt.Errorf("has %d bytes: at most 65535 fit", len(s))
	case !utf8.ValidString(s):
		return errUTF8
	case strings.IndexByte(s, 0) >= 0:
		return errNUL
	}
	return nil
}

// ValidateTopic checks a topic name, as one publishes to: not empty and without wildcards.
func ValidateTopic(topic string) error {
	if topic == "" {
		return errEmpty
	}
	if err := ValidateString(topic); err != nil {
		return err
	}
	if strings.ContainsAny(topic, "+#") {
		return errWildcard
	}
	return nil
}

// ValidateFilter checks a topic filter: not empty, '#' only as the whole last level, '+' only as a whole level. It
// knows nothing of shared subscriptions: "$share/group/filter" is to it a filter like any other.
func ValidateFilter(filter string) error {
	if filter == "" {
		return errEmpty
	}
	if err := ValidateString(filter); err != nil {
		return err
	}
	for rest, more := filter, true; more; {
		var level string
		level, rest, more = strings.Cut(rest, "/")
		switch {
		case strings.Contains(level, "#") && (level != "#" || more):
			return errHash
		case strings.Contains(level, "+") && level != "+":
			return errPlus
		}
	}
	return nil
}

// ValidateGroup checks the ShareName of a shared subscription (MQTT 5 section 4.8.2): not empty, without '/', '+' and
// '#'.
func ValidateGroup(group string) error {
	if group == "" {
		return errEmpty
	}
	if err := ValidateString(group); err != nil {
		return err
	}
	if strings.ContainsAny(group, "/+#") {
		return errors.New("contains '/', '+' or '#', which the name of a group may not")
	}
	return nil
}

// HasWildcard tells whether a filter matches more than the topic of its own name.
func HasWildcard(filter string) bool { return strings.ContainsAny(filter, "+#") }

// Shared returns the filter as SUBSCRIBE carries it: "$share/group/filter", or the filter itself without a group.
func Shared(group, filter string) string {
	if group == "" {
		return filter
	}
	return "$share/" + group + "/" + filter
}

// Match tells whether a valid filter matches a topic (MQTT 5 section 4.7). '#' matches its parent level too, '+' an
// empty level, and neither matches a first level that begins with '$'.
func Match(filter, topic string) bool {
	if strings.HasPrefix(topic, "$") && (strings.HasPrefix(filter, "+") || strings.HasPrefix(filter, "#")) {
		return false
	}
	for {
		if filter == "#" {
			return true
		}
		f, fRest, fMore := strings.Cut(filter, "/")
		t, tRest, tMore := strings.Cut(topic, "/")
		if f != "+" && f != t {
			return false
		}
		switch {
		case fMore && tMore:
			filter, topic = fRest, tRest
		case fMore:
			return fRest == "#"
		default:
			return !tMore
		}
	}
}

// Level returns the i-th level of a topic, counted from 0, and "" where there is none.
func Level(topic string, i int) string {
	if i < 0 {
		return ""
	}
	for ; i > 0; i-- {
		_, rest, more := strings.Cut(topic, "/")
		if !more {
			return ""
		}
		topic = rest
	}
	level, _, _ := strings.Cut(topic, "/")
	return level
}
