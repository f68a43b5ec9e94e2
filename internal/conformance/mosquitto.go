package conformance

// What is seen of several.
const (
	noDISCONNECT = "closed without DISCONNECT"
	notClosed    = "the server has not closed the connection"
)

// Mosquitto2 are the deviations of Mosquitto 2.0.11.
var Mosquitto2 = []Deviation{
	// Those that Settle is built around.
	{"TakeoverSaysSo", noDISCONNECT, "Takeover closes the socket without 0x8E. Three short connections in a row back off for long, and the suspicion is logged."},
	{"TheServerKeepsToTheClientsReceiveMaximum", "unexpected: [PUBLISH", "The window is overrun once something is acknowledged. Settle takes in what is too much, within its bound in bytes."},
	{"TheWindowHoldsOnAResumedSession", "unexpected: [PUBLISH", "The same."},
	{"ASmallerWindowHoldsOnAResumedSession", "unexpected: [PUBLISH 3 QoS 1 DUP true", "All that was in flight comes again at once, whatever the Receive Maximum of the new connection. The same."},
	{"IdentifiersAreNotReusedWhileUnacknowledged", "is used again after", "The identifier of a QoS 2 message between PUBREC and PUBCOMP is taken for another message after a lap. Settle goes by the whole frame: another one is a new message."},
	{"PUBRECSays0x10WhereNobodySubscribes", "PUBREC 0x00, want 0x10", "At QoS 2 nothing is said. Copies and dead letters are published at QoS 1."},
	{"WhatHasExpiredTakesNoSlot", "nothing has come", "What expires in the queue can stall it until the next connection. docs/guarantees.md says so."},
	{"ExpiredMessagesDoNotStallAResumedSession", "nothing has come", "The same on a resumed session."},
	{"WhatIsTooLargeForAClientTakesNoSlot", "nothing has come", "What is discarded keeps its slot. Settle sends no Maximum Packet Size, and judges by itself."},
	{"ASharedSubscriptionGetsNoRetainedMessages", `"kept"`, "Retained messages are sent to shared subscriptions. Delivery.Retained says so."},
	{"AMemberThatIsAwayIsPassedOver", "the members have got", "A session takes its share while it is away. App.Retire ends those of members that are given up."},
	{"AMemberWithAFullWindowIsPassedOver", "the members have got", "Members take turns, whether they have room or not: a slow one delays its share."},
	{"WhatAMemberHadGoesToAnotherWhenItsSessionEnds", "the members have got []", "What it had is gone. A shared route without a session is refused at start; App.Retire drains before it ends one."},
	{"WhatWaitedForAMemberGoesToAnotherWhenItsSessionEnds", "the members have got []", "The same."},

	// Answers that Settle does not need: it breaks none of these rules, and takes the end of a connection as it comes.
	{"PUBRELOfAnUnknownIdentifierIsAnswered0x92", "PUBCOMP for 9 with 0x00", "It is answered as if it were known."},
	{"TheServersReceiveMaximumIsEnforced", noDISCONNECT, "It ends the connection and does not say why. Settle keeps to the maximum."},
	{"NoLocalOnASharedSubscriptionIsAProtocolError", notClosed, "It is granted. Settle refuses it in its configuration."},
	{"ASharedFilterThatIsNoneIsNotGranted", `"$share/g" was granted`, "It is granted as an ordinary filter. Settle checks filters itself."},
	{"TopicAlias0IsRefused", "DISCONNECT 0x81, want 0x94", "It is called malformed. Settle sends no aliases."},
	{"ASecondCONNECTIsAProtocolError", noDISCONNECT, "It ends the connection and does not say why."},
	{"ARemainingLengthOfFiveBytes", noDISCONNECT, "The same."},
	{"PUBRELWithFlags0", noDISCONNECT, "The same."},
	{"PUBLISHWithAPropertyTwice", noDISCONNECT, "The same."},
	{"PUBACKOfOneByte", noDISCONNECT, "The same."},
	{"AUTHWithoutAMethod", noDISCONNECT, "The same."},
	{"PINGREQWithFlags", notClosed, "It is let pass."},
	{"PUBLISHWithASubscriptionIdentifier", notClosed, "The same."},
	{"PUBLISHWithAResponseTopicWithWildcards", notClosed, "The same. Settle refuses to reply to such a topic."},
	{"SUBACKFromAClient", notClosed, "The same."},
}
