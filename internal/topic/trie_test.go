package topic

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// levels are few, so that filters and topics meet, and contain what is special: empty levels, '$' and names that begin
// with one another.
var levels = []string{"", "a", "b", "ab", "$", "$a"}

func genTopic() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		n := rapid.IntRange(1, 5).Draw(t, "levels")
		parts := make([]string, n)
		for i := range parts {
			parts[i] = rapid.SampledFrom(levels).Draw(t, "level")
		}
		if n == 1 && parts[0] == "" {
			parts[0] = "a"
		}
		return strings.Join(parts, "/")
	})
}

func genFilter() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		parts := strings.Split(genTopic().Draw(t, "topic"), "/")
		for i := range parts {
			if rapid.IntRange(0, 2).Draw(t, "wild") == 0 {
				parts[i] = "+"
			}
		}
		switch rapid.IntRange(0, 3).Draw(t, "hash") {
		case 0:
			parts[len(parts)-1] = "#"
		case 1:
			parts = append(parts, "#")
		}
		return strings.Join(parts, "/")
	})
}

// naive matches by the words of MQTT 5 section 4.7, level by level and in no hurry.
func naive(filter, topic string) bool {
	f, t := strings.Split(filter, "/"), strings.Split(topic, "/")
	if strings.HasPrefix(t[0], "$") && (f[0] == "+" || f[0] == "#") {
		return false
	}
	for i, level := range f {
		if level == "#" {
			return len(t) >= i
		}
		if i >= len(t) || level != "+" && level != t[i] {
			return false
		}
	}
	return len(f) == len(t)
}

func TestTrieIsTheNaiveMatcher(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		filters := rapid.SliceOfN(genFilter(), 0, 20).Draw(t, "filters")
		topic := genTopic().Draw(t, "topic")

		var trie Trie[int]
		var want []int
		for i, f := range filters {
			if err := ValidateFilter(f); err != nil {
				t.Fatalf("the generator made %q: %v", f, err)
			}
			trie.Insert(f, i)
			if naive(f, topic) != Match(f, topic) {
				t.Fatalf("Match(%q, %q) = %v", f, topic, Match(f, topic))
			}
			if naive(f, topic) {
				want = append(want, i)
			}
		}
		var got []int
		trie.Match(topic, func(i int) { got = append(got, i) })
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("%q among %q: got %v, want %v", topic, filters, got, want)
		}
	})
}

func TestLevelsJoinToTheTopic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topic := genTopic().Draw(t, "topic")
		for i, want := range strings.Split(topic, "/") {
			if got := Level(topic, i); got != want {
				t.Fatalf("Level(%q, %d) = %q", topic, i, got)
			}
		}
	})
}

func TestIDIsASubscriptionIdentifier(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := ID(rapid.String().Draw(t, "group"), rapid.String().Draw(t, "filter"))
		if id < 1 || id > MaxID {
			t.Fatal(id)
		}
	})
}

func TestMatchAllocatesNothing(t *testing.T) {
	var trie Trie[int]
	for i := range 100 {
		trie.Insert(fmt.Sprintf("meters/%d/usage", i), i)
	}
	trie.Insert("meters/+/usage", 100)
	trie.Insert("#", 101)
	sum := 0
	yield := func(v int) { sum += v }
	if n := testing.AllocsPerRun(100, func() { trie.Match("meters/42/usage", yield) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if sum == 0 {
		t.Error("nothing matched")
	}
	if n := testing.AllocsPerRun(100, func() { _ = Match("meters/+/usage", "meters/42/usage"); _ = Level("meters/42/usage", 1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
