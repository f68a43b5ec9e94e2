package settle

import (
	"context"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"github.com/settlemq/settle/internal/link"
)

// The retry topics are open when every one of them is subscribed, and what an earlier process left in the server's queue has come:
// a marker that is published behind it has come back.

// up says that the second connection has every subscription granted.
func (rs *returns) up(s link.Session) {
	rs.mu.Lock()
	first := !rs.wasUp
	rs.wasUp, rs.markerWait = true, markerTime
	if first && s.Present {
		// An earlier process may have left copies in the queue. When what we publish now has come back, they have.
		for topic, rt := range rs.app.retryRoutes {
			if rt.group == "" { // in a group, another member may get the marker
				rs.markers[topic] = newID()
			}
		}
	}
	rs.mu.Unlock()
	rs.sendMarkers()
	rs.tryOpen()
}

func (rs *returns) tryOpen() {
	rs.mu.Lock()
	rs.open = len(rs.markers) == 0 && rs.in.link.Up()
	rs.mu.Unlock()
	rs.app.couriers.pump()
}

func (rs *returns) down() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.open = false
}

// sendMarkers sends those that have not come back, again and again: a server may drop them as it drops copies. It does so ever more seldom and
// each may take longer, or one that stands behind a long queue would expire there every time.
func (rs *returns) sendMarkers() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if len(rs.markers) == 0 {
		return
	}
	wait := rs.markerWait
	rs.markerWait = min(2*wait, maxMarkerTime)
	for topic, id := range rs.markers {
		rs.app.spawn(func() { rs.sendMarker(topic, id, 2*wait) })
	}
	rs.app.later.after(wait, rs, rs.sendMarkers)
}

func (rs *returns) sendMarker(topic, id string, lifetime time.Duration) {
	expiry, _ := wholeSeconds(lifetime)
	p := &paho.Publish{Topic: topic, QoS: byte(AtLeastOnce), Properties: &paho.PublishProperties{MessageExpiry: &expiry}}
	p.Properties.User.Add(headerMarker, id)
	p.Properties.User.Add(headerOwner, rs.app.config.ClientID)
	ctx, cancel := context.WithTimeout(rs.app.running, confirmTime)
	defer cancel()
	if answer, err := rs.app.main.link.Publish(ctx, p); err != nil || answer.Code >= noMatchingSubscribers {
		rs.mu.Lock()
		rs.markerWait = markerTime // it is not the queue that takes so long
		rs.mu.Unlock()
		rs.app.log.Warn().Err(publishError(topic, answer, err)).Str("topic", topic).
			Msg("the marker for the retry topic could not be sent; retries wait and it is tried again")
	}
}

func (rs *returns) markerCame(topic string, h *copyHeaders) {
	rs.mu.Lock()
	ours := rs.markers[topic] == h.marker
	if ours {
		delete(rs.markers, topic)
	}
	rs.mu.Unlock()
	if ours {
		rs.app.spawn(rs.tryOpen)
	}
}
