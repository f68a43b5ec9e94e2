// Package settle consumes MQTT 5 messages and loses none. A program registers functions that say what should become of
// each message; the package turns what they say into acknowledgements, retries and dead letters, and keeps doing so
// across cuts, restarts and crashes.
//
//	bill := func(ctx context.Context, usage Usage) settle.Outcome {
//		if usage.KWh < 0 {
//			return settle.Drop("negative usage")
//		}
//		return settle.OrRetry(ledger.Post(ctx, usage)) // nil: Ack
//	}
//	app, err := settle.New(
//		settle.Config{Servers: []string{"mqtt://localhost:1883"}, ClientID: "billing-0"},
//		settle.Handle("meters/+/usage", bill, settle.RetryTo("billing/retry/usage"), settle.DeadLetterTo("billing/dead")),
//	)
//	if err != nil {
//		return err // everything that is wrong, at once
//	}
//	return app.Run(ctx) // until ctx ends or SIGTERM comes; drains
//
// # Outcomes
//
// A handler gets a decoded value, and the rest of its delivery from its context ([DeliveryFrom]). It returns an
// [Outcome]: [Ack] and [Drop] acknowledge; [Reject] acknowledges once the dead letter is stored; [Retry] and
// [RetryAfter] acknowledge once a copy is stored on the retry topic, or hold the delivery where there is none. Nothing
// is acknowledged before it is settled, and acknowledgements leave in the order of arrival (MQTT 5 section 4.6). A batch
// handler ([HandleBatch]) returns one outcome for each element.
//
// Panics, timeouts, oversize and undecodable payloads become outcomes too: see [OnPanic], [OnTimeout], [OnOversize] and
// [OnDecodeFailure].
//
// # What can be lost, and what can come twice
//
// At QoS 1 and 2, with a session (the default), a message is lost where the server loses it, and where the program says so: by
// [Drop], by [Reject] or undecodable bytes without a dead-letter topic, which is named in a warning at start. A message is handled twice
// when a process was killed, or a connection cut, between its settlement and its acknowledgement; a publisher's
// [MessageID] lets a handler notice. At QoS 0, what a crash, a cut or a full queue meets is gone. All kinds are in
// docs/guarantees.md of the repository, each with the test that holds it.
//
// # Order
//
// A route handles one delivery at a time, in the order of arrival, unless [Workers] says otherwise; with a key function
// the deliveries of a key stay in order. A retried delivery is overtaken by those behind it.
//
// # Publishing
//
// Handlers publish through their context, by [Publish] and [Reply]; programs through the [App], or a [Publisher]. A publish
// returns when the server has answered, and its error tells apart what was never sent ([ErrNotConnected]), what perhaps was
// ([ErrUnconfirmed]), what the server refused (*[ServerError]) and what cannot be encoded (*[EncodeError]).
//
// # Life
//
// [New] checks, [App.Start] begins to dial, [App.WaitReady] waits for the subscriptions, [App.Stop] drains; [App.Run] is
// all of it. With fx, [Module] and [ProvideRoute] do the same. [App.Live] and [App.Ready] answer probes, Config.Metrics and Config.Logger say
// what happens. A client id that will not come back leaves by [App.Retire].
//
// Package middleware has logging, rate limits and a circuit breaker to put around handlers.
package settle
