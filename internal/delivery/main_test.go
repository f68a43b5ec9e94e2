package delivery_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/settlemq/settle/internal/mosquitto"
	"github.com/settlemq/settle/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scenario is one guarantee, or a part of one. Its server refuses what is published to denied/#, for a lack of rights.
type scenario struct {
	name string
	run  func(w *world)
}

var suite = []struct {
	guarantee string // a heading of docs/guarantees.md
	scenarios []scenario
}{
	{"WhatEachOutcomeSends", outcomeScenarios},
	{"WhatBecomesAnOutcome", faultScenarios},
	{"WhatIsLostAndWhen", lossScenarios},
	{"WhatIsHandledTwice", redeliveryScenarios},
	{"WhatIsNeverDone", neverScenarios},
	{"RetryAndDeadLetters", retryScenarios},
	{"Order", orderScenarios},
}

// limit is how long the whole suite may take in process, in real time, with the race detector and beside other tests.
const limit = 10 * time.Second

func TestDelivery(t *testing.T) {
	began := time.Now()
	for _, part := range suite {
		t.Run(part.guarantee, func(t *testing.T) {
			for _, s := range part.scenarios {
				t.Run(s.name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						b := testkit.NewBroker(t)
						b.RefusePublish("denied/#", 0x87)
						s.run(&world{
							t: t, start: func(w *world) { w.kit = testkit.StartOn(w.t, b, w.app) },
							restart: func() { b.Restart(false) },
						})
					})
				})
			}
		})
	}
	if took := time.Since(began); took > limit {
		t.Errorf("the suite took %v, which may be %v at the most", took, limit)
	}
}

func TestLiveDelivery(t *testing.T) {
	for _, part := range suite {
		t.Run(part.guarantee, func(t *testing.T) {
			for _, s := range part.scenarios {
				t.Run(s.name, func(t *testing.T) {
					rights := filepath.Join(t.TempDir(), "rights")
					if err := os.WriteFile(rights, []byte("topic deny denied/#\ntopic readwrite #\n"), 0o600); err != nil {
						t.Fatal(err)
					}
					m := mosquitto.Require(t, mosquitto.Options{Lines: []string{"acl_file " + rights}})
					s.run(&world{
						t: t, live: true, start: func(w *world) { w.kit = testkit.StartLive(w.t, m.URL(), w.app).Within(patience) },
						restart: func() {
							m.Kill()
							if err := m.Restart(); err != nil {
								t.Fatal(err)
							}
						},
					})
				})
			}
		})
	}
}
