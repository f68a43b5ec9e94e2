package topic

import "hash/fnv"

// MaxID is the largest Subscription Identifier (MQTT 5 section 3.8.2.1.2).
const MaxID = 268_435_455

// ID returns the Subscription Identifier, from 1 to [MaxID], of a filter in a group ("" for none). A server keeps the
// identifier that a message was queued with, so it is the same in every process and in every release: FNV-1a of group,
// a zero byte and filter, its 32 bits folded into 28. Two filters may share one; who uses it checks the topic as well.
func ID(group, filter string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(group))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(filter))
	sum := h.Sum32()
	return max(sum>>28^sum&MaxID, 1)
}
