package main

// fault is a deliberate fault and the tests that have to catch it, by name, so that none is caught by accident.
type fault struct {
	name  string // as package mutant has it; "" for none
	row   int    // of "What is never done" in docs/guarantees.md, which it breaks
	tests []test
}

// tag is the build tag that puts it in.
func (f fault) tag() string {
	if f.name == "" {
		return ""
	}
	return "settle_mutant_" + f.name
}

func (f fault) String() string {
	if f.name == "" {
		return "no fault"
	}
	return f.name
}

const (
	window   = "internal/window"
	delivery = "internal/delivery"
	never    = "TestDelivery/WhatIsNeverDone/"
)

var faults = []fault{
	{"ack_early", 1, []test{
		{"", "TestNothingIsAcknowledgedBeforeItIsSettled"}, {"", "TestOutcomesOnTheWire"}, {window, "TestExhaustive"},
	}},
	{"out_of_order", 2, []test{
		{"", "TestB3_AcknowledgementsLeaveInTheOrderOfArrival"}, {delivery, never + "AcknowledgesNothingOutOfOrder"}, {window, "TestExhaustive"},
	}},
	{"cross_epoch", 4, []test{{"", "TestA4_LateSettlementMeetsNoOtherMessage"}, {window, "TestExhaustive"}}},
	{"adopt_acknowledged", 5, []test{
		{"", "TestK11_AReusedIdentifierWithTheSameBytesIsHandled"}, {"", "TestK5_WhatIsNotProvedIsHandledAgainInOrder"}, {window, "TestExhaustive"},
	}},
	{"unconfirmed", 7, []test{
		{"", "TestD1_ADeadLetterThatFailsKeepsItsOriginal"}, {"", "TestOutcomesOnTheWire"}, {delivery, never + "AcknowledgesAnOriginalWhoseCopyIsNotStored"},
	}},
	{"leak_on_panic", 8, []test{{"", "TestD7_APanicCostsOneAttempt"}, {delivery, never + "LosesASlotOfTheWindow"}}},
	{"unsubscribe_at_stop", 11, []test{
		{"", "TestH1_StopNeverUnsubscribesNorExpiresTheSession"}, {delivery, never + "UnsubscribesOrEndsTheSessionAtStop"},
	}},
}
