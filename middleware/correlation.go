package middleware

import (
	"bytes"
	"context"
	"encoding/hex"
	"unicode"
	"unicode/utf8"

	"github.com/rs/zerolog"

	"github.com/settlemq/settle"
)

// Correlation gives handlers, and what is inside of it in the chain, a logger that says which message it is about: log with the fields of
// [About]. They find it with zerolog.Ctx(ctx), and so does all that they call:
//
//	func bill(ctx context.Context, usage Usage) settle.Outcome {
//		zerolog.Ctx(ctx).Info().Float64("kwh", usage.KWh).Msg("billed")
//
// The logger of a batch has its route and its size as batch, for it is about many messages; [About] makes one for a single element. Correlation
// replaces a logger that the context has already: give that one to it where both are wanted.
func Correlation(log zerolog.Logger) settle.Middleware {
	return func(next settle.Next) settle.Next {
		return func(ctx context.Context) settle.Outcomes {
			var mine zerolog.Logger
			if deliveries := settle.DeliveriesFrom(ctx); len(deliveries) > 1 {
				mine = log.With().Str("route", deliveries[0].Route()).Int("batch", len(deliveries)).Logger()
			} else {
				mine = About(log, settle.DeliveryFrom(ctx))
			}
			return next(mine.WithContext(ctx))
		}
	}
}

// About returns log with fields that say which message a line is about: route, message_id, attempt beyond the first, and the
// correlation data of a request. Those are written as correlation_data where they are printable text and in hexadecimal as
// correlation_data_hex where they are not, as a UUID of 16 bytes is not. Long ones are cut at 512 bytes, that is, at 256 bytes of
// data where it is hexadecimal.
//
// Batch handlers use it for an element:
//
//	log := middleware.About(*zerolog.Ctx(ctx), settle.DeliveriesFrom(ctx)[i])
//
// For a nil Delivery it returns log as it is, so that handlers can be tested as the functions that they are.
func About(log zerolog.Logger, d *settle.Delivery) zerolog.Logger {
	if d == nil {
		return log
	}
	fields := log.With().Str("route", d.Route()).Str("message_id", clip(d.MessageID()))
	if d.Attempt() > 1 {
		fields = fields.Int("attempt", d.Attempt())
	}
	switch data := d.CorrelationData(); {
	case len(data) == 0:
	case printable(data):
		fields = fields.Str("correlation_data", clip(string(data)))
	case len(data) > maxText/2:
		fields = fields.Str("correlation_data_hex", hex.EncodeToString(data[:maxText/2])+"…")
	default:
		fields = fields.Str("correlation_data_hex", hex.EncodeToString(data))
	}
	return fields.Logger()
}

// printable says that data is text that a person can read, in one line.
func printable(data []byte) bool {
	return utf8.Valid(data) && bytes.IndexFunc(data, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}
