package settle

import "testing"

func TestDeadLetter(t *testing.T) {
	for _, test := range []struct {
		name    string
		headers []MessageOption
		own     [][2]string
		want    DeadLetter
		ok      bool
	}{
		{name: "an ordinary message", headers: []MessageOption{Header("site", "north")}},
		{
			name: "a dead letter",
			own: [][2]string{
				{headerMessageID, "m1"}, {headerAttempt, "5"}, {headerTopic, "meters/1/usage"}, {headerRoute, "usage"}, {headerReason, "ledger down"},
			},
			want: DeadLetter{Reason: "ledger down", Attempts: 5, OriginalTopic: "meters/1/usage", Route: "usage", MessageID: "m1"},
			ok:   true,
		},
		{name: "no route", own: [][2]string{{headerTopic, "meters/1/usage"}}},
		{
			name: "attempts that are no number", own: [][2]string{{headerTopic, "t"}, {headerRoute, "r"}, {headerAttempt, "many"}, {headerStub, "too large"}},
			want: DeadLetter{OriginalTopic: "t", Route: "r", Stub: "too large"}, ok: true,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			options := test.headers
			for _, h := range test.own {
				options = append(options, messageOptionFunc(func(m *message) { m.add(h[0], h[1]) }))
			}
			made, err := testDelivery("dead", []byte("x"), options)
			if err != nil {
				t.Fatal(err)
			}
			got, ok := made.(*Delivery).DeadLetter()
			if got != test.want || ok != test.ok {
				t.Errorf("got %+v, %t", got, ok)
			}
		})
	}
	var none *Delivery
	if letter, ok := none.DeadLetter(); ok || letter != (DeadLetter{}) {
		t.Errorf("a nil delivery: %+v", letter)
	}
}
