// Package keep is a placeholder that holds the module's requirements until the code that needs them exists.
package keep

import (
	_ "github.com/coder/websocket"
	_ "github.com/eclipse/paho.golang/paho"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/rs/zerolog"
	_ "github.com/sony/gobreaker/v2"
	_ "go.uber.org/fx"
	_ "go.uber.org/goleak"
	_ "golang.org/x/time/rate"
	_ "pgregory.net/rapid"
	_ "github.com/prometheus/client_golang/prometheus/testutil"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
)
