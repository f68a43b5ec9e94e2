package field_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// An id is how the reports name a kind of failure.
type id struct {
	name string
	// unprovokable is why no server can bring it about; "" if one can, and then tests of this package are named after it.
	unprovokable string
	// elsewhere are tests of other packages that hold it too, or alone, by their directories from the root: what a connection before
	// CONNECT, a real server, or a process of its own is needed for.
	elsewhere []string
}

// ids are those of the field reports, in their order.
var ids = []id{
	{name: "A1", elsewhere: []string{"internal/live TestLiveA1_SessionLostWhileOffline"}},
	{name: "A2", elsewhere: []string{"internal/live TestLiveA2_FilterChanged"}},
	{name: "A3", elsewhere: []string{"internal/live TestLiveA3_BacklogBeforeTheHandlers"}},
	{name: "A4"},
	{name: "A5", elsewhere: []string{"internal/live TestLiveA5_AcknowledgedOnTheNewConnection"}},
	{name: "A7"},
	{name: "A8", unprovokable: "New refuses the configuration before anything is dialled", elsewhere: []string{". TestA8_ADurableSessionNeedsAClientID"}},
	{name: "B1"},
	{name: "B3", elsewhere: []string{"internal/live TestLiveB3_AcknowledgementsInOrder"}},
	{name: "B4"},
	{name: "B5"},
	{name: "B6"},
	{name: "B7"},
	{name: "B8"},
	{name: "B10"},
	{name: "C1"},
	{name: "C2", elsewhere: []string{". TestC2_AMillionDeliveriesThroughASlowHandlerInFlatMemory"}},
	{name: "C3"},
	{name: "C4", elsewhere: []string{"internal/live TestLiveC4_FullServerQueueDropsTheNewest"}},
	{name: "D1"},
	{name: "D2"},
	{name: "D3", elsewhere: []string{"internal/live TestLiveK2_D3_DeadLetterWithoutSubscribers"}},
	{name: "D4"},
	{name: "D5"},
	{name: "D7"},
	{name: "D8", elsewhere: []string{"internal/live TestLiveD8_RetainIsCleared"}},
	{name: "E2"},
	{name: "E3", elsewhere: []string{"internal/live TestLiveE3_Retire"}},
	{name: "E5", elsewhere: []string{"internal/live TestLiveE5_OverlappingFilters"}},
	{name: "E7", elsewhere: []string{"internal/live TestLiveE7_SharedSubscriptionAfterRestart"}},
	{name: "F1"},
	{name: "F2"},
	{name: "F4", elsewhere: []string{"internal/live TestLiveF4_OversizeDoesNotEatTheWindow"}},
	{name: "F5"},
	{name: "F7"},
	{name: "G1", elsewhere: []string{"internal/live TestLiveG1_TwoProcessesOneClientID"}},
	{name: "G3"},
	{name: "G6", unprovokable: "certificates are read before MQTT begins, and testkit dials in the app's place", elsewhere: []string{"internal/link TestG6TheCertificateIsAskedForAtEachDial"}},
	{name: "G7"},
	{name: "G8", elsewhere: []string{"internal/link TestG8ADialThatHangsHasADeadline"}},
	{name: "H1", elsewhere: []string{"internal/live TestLiveH1_StopKeepsTheSubscription"}},
	{name: "H2", elsewhere: []string{"internal/live TestLiveH2_SIGTERMInAHandler"}},
	{name: "H4"},
	{name: "H5", elsewhere: []string{"internal/live TestLiveH5_ServerRestartedTenTimes"}},
	{name: "H6"},
	{name: "K1", elsewhere: []string{"internal/live TestLiveK1_BacklogUnderOlderIdentifiers"}},
	{name: "K2", elsewhere: []string{"internal/live TestLiveK2_D3_DeadLetterWithoutSubscribers"}},
	{name: "K3", elsewhere: []string{"internal/live TestLiveK3_RetriesWhileTheRetrySessionIsOffline"}},
	{name: "K4", elsewhere: []string{"internal/live TestLiveK4_StopWhileDeliveriesArrive"}},
	{name: "K5", elsewhere: []string{"internal/live TestLiveCuts"}},
	{name: "K6"},
	{name: "K7", elsewhere: []string{"internal/live TestLiveK7_ReplicasOnOneRetryTopic"}},
	{name: "K8"},
	{name: "K9"},
	{name: "K10", elsewhere: []string{"internal/live TestLiveK10_RetryTopicRenamed"}},
	{name: "K11"},
	{name: "K12"},
	{name: "K13", elsewhere: []string{"internal/live TestLiveK13_CopiesThatAllFailAgain"}},
	{name: "K14", elsewhere: []string{"internal/live TestLiveK14_RetryTopicsInsideTheFilterOfAnother"}},
	{name: "K15", elsewhere: []string{"internal/live TestLiveK15_SmallInFlightLimit"}},
	{name: "I1"},
	{name: "I2"},
	{name: "I3"},
	{name: "I4"},
}

// TestEveryIDIsHeld holds the table to the tests: an id that a server can provoke has a test here that is named after it, one that none can has a reason and a test
// elsewhere, and no test is named after an id that is not there.
func TestEveryIDIsHeld(t *testing.T) {
	tests := make(map[string][]string) // by id
	named := regexp.MustCompile(`^Test([A-Z]\d+)_`)
	for _, test := range testsIn(t, ".") {
		if found := named.FindStringSubmatch(test); found != nil {
			tests[found[1]] = append(tests[found[1]], test)
		}
	}
	known := make(map[string][]string) // tests of other packages, by directory
	for _, id := range ids {
		switch {
		case id.unprovokable == "" && len(tests[id.name]) == 0:
			t.Errorf("%s has no test here, and no reason why no server could provoke it", id.name)
		case id.unprovokable != "" && len(tests[id.name]) > 0:
			t.Errorf("no server can provoke %s (%s), but %q do", id.name, id.unprovokable, tests[id.name])
		case id.unprovokable != "" && len(id.elsewhere) == 0:
			t.Errorf("nothing holds %s", id.name)
		}
		delete(tests, id.name)
		for _, other := range id.elsewhere {
			dir, test, _ := strings.Cut(other, " ")
			if known[dir] == nil {
				known[dir] = testsIn(t, filepath.Join("..", "..", dir))
			}
			if !slices.Contains(known[dir], test) {
				t.Errorf("%s: there is no %s in %s", id.name, test, dir)
			}
		}
	}
	for name, orphans := range tests {
		t.Errorf("%q are named after %s, which the table does not have", orphans, name)
	}
}

// TestTheTableHasTheIDsOfTheReports reads the reports, where they are at hand.
func TestTheTableHasTheIDsOfTheReports(t *testing.T) {
	text, err := os.ReadFile("../../../shared/design/FIELD_REPORTS.md")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the field reports are not beside this repository")
	}
	if err != nil {
		t.Fatal(err)
	}
	var reported, listed []string
	for _, found := range regexp.MustCompile(`(?m)^- \*\*([A-Z]\d+)\*\*`).FindAllSubmatch(text, -1) {
		reported = append(reported, string(found[1]))
	}
	for _, id := range ids {
		listed = append(listed, id.name)
	}
	if len(reported) == 0 || !slices.Equal(listed, reported) {
		t.Errorf("the table has %q, the reports %q", listed, reported)
	}
}

// testsIn are the test functions of a directory's packages.
func testsIn(t *testing.T, dir string) (all []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				all = append(all, f.Name.Name)
			}
		}
	}
	return all
}
