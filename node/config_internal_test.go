package node

import (
	"strings"
	"testing"
)

// TestAnAddressThatStandsTwiceInJoinIsRefused: the second is perhaps a node's that is missing.
func TestAnAddressThatStandsTwiceInJoinIsRefused(t *testing.T) {
	cfg := Config{DataDir: "data", PeerAddr: "127.0.0.1:7712", Join: []string{"127.0.0.1:7712", "127.0.0.1:7722", "127.0.0.1:7732", "127.0.0.1:7722"}, BootstrapExpect: 3}
	cfg.EnsureDefaults()
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "join: 127.0.0.1:7722 stands there twice") || strings.Contains(err.Error(), "7732") {
		t.Errorf("got %v", err)
	}
	cfg.Join = cfg.Join[:3]
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
}
