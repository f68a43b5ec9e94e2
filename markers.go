package settle

import (
	"context"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"github.com/settlemq/settle/internal/link"
)

// A marker is published behind copies: when it has come back, so have they, or the server has lost them.
type marker struct {
	id     string
	opens  bool                // until it is back, nothing new is published: an earlier process may have left copies
	behind map[string]*outCopy // copies that were confirmed before it was sent: one that has come back meanwhile, and gone out once more, is another
}

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
				rs.markers[topic] = marker{id: newID(), opens: true}
			}
		}
	}
	if !first && s.Present {
		rs.doubt()
	}
	rs.mu.Unlock()
	rs.sendMarkers()
	rs.tryOpen()
}

// doubt sends a marker behind the copies that are on their way back. Session Present = 1 does not say that this is the session which had
// them: the server may have come back with an older state, or have begun a session on a connection whose CONNACK was lost. rs.mu is held.
func (rs *returns) doubt() {
	for copyID, c := range rs.out {
		rt := c.errand.d.route
		if m := rs.markers[rt.retryTo]; c.confirmed && rt.group == "" && !m.opens {
			if m.behind == nil {
				m.behind = make(map[string]*outCopy)
			}
			m.behind[copyID] = c
			rs.markers[rt.retryTo] = m
		}
	}
	for topic, m := range rs.markers {
		if !m.opens {
			m.id = newID() // one that was sent before proves nothing about this connection
			rs.markers[topic] = m
		}
	}
}

// opening tells whether a marker is awaited that an earlier process made necessary. rs.mu is held.
func (rs *returns) opening() bool {
	for _, m := range rs.markers {
		if m.opens {
			return true
		}
	}
	return false
}

func (rs *returns) tryOpen() {
	rs.mu.Lock()
	rs.open = !rs.opening() && rs.in.link.Up()
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
	for topic, m := range rs.markers {
		rs.app.spawn(func() { rs.sendMarker(topic, m.id, 2*wait) })
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
	m := rs.markers[topic]
	ours := m.id == h.marker
	if ours {
		delete(rs.markers, topic)
		for copyID, c := range m.behind {
			if rs.out[copyID] == c {
				rs.again(c)
			}
		}
	}
	rs.mu.Unlock()
	if ours {
		rs.app.spawn(rs.tryOpen)
	}
}
