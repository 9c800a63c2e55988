package peernet_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirdb/weir/internal/peernet"
	"github.com/weirdb/weir/internal/peernet/peernettest"
)

// equip gives a node's Net a certificate for the given name, as the product does: from files.
func equip(t *testing.T, cfg *peernet.Config, by *peernettest.Authority, name string) {
	t.Helper()
	var err error
	if cfg.ServerTLS, cfg.ClientTLS, err = peernet.LoadTLS(by.Write(t, t.TempDir(), name, 2)); err != nil {
		t.Fatal(err)
	}
}

func TestWithTLSANodeIsWhoItsCertificateSays(t *testing.T) {
	w := &world{t: t}
	ca, foreign := peernettest.NewAuthority(t), peernettest.NewAuthority(t)
	node := func(name, certified string, by *peernettest.Authority) *peernet.Net {
		return w.open(name, func(c *peernet.Config) { equip(t, c, by, certified) })
	}
	good := node("n1", "n1", ca)
	echo(t, good, "x")
	friend := node("n2", "n2", ca)
	c, err := friend.Dial(ctx(t), "n1", "x")
	if err != nil {
		t.Fatal(err)
	}
	say(t, c, "in confidence")
	if id, err := friend.Who(ctx(t), good.Addr().String()); err != nil || id.Node != "n1" {
		t.Errorf("who: %+v, %v", id, err)
	}

	liar := node("n3", "n2", ca) // has n2's certificate
	_, err = liar.Dial(ctx(t), "n1", "x")
	wantRefused(t, err, peernet.ReasonCertificate, true)
	echo(t, liar, "x")
	if _, err := friend.Dial(ctx(t), "n3", "x"); err == nil {
		t.Error("a node with another's certificate was believed")
	}
	if _, err := friend.Who(ctx(t), liar.Addr().String()); err == nil {
		t.Error("a node with another's certificate was believed")
	}
	stranger := node("n4", "n4", foreign)
	if _, err := stranger.Dial(ctx(t), "n1", "x"); err == nil {
		t.Error("a foreign certificate was accepted")
	}
	if _, err := friend.Who(ctx(t), stranger.Addr().String()); err == nil {
		t.Error("a foreign certificate was believed")
	}
	plain := w.open("n5", nil)
	if _, err := plain.Dial(ctx(t), "n1", "x"); err == nil {
		t.Error("a node without TLS was let in")
	}
}

func TestBadConfigIsNamed(t *testing.T) {
	_, err := peernet.Open(peernet.Config{ServerTLS: &tls.Config{}, MaxConns: -1, HelloTimeout: -1})
	for _, field := range []string{"Self.Node", "Self.Data", "Resolve", "ServerTLS, ClientTLS", "ServerTLS", "MaxConns", "HelloTimeout"} {
		if err == nil || !strings.Contains(err.Error(), "peernet.Config."+field+":") {
			t.Errorf("%s is not named in %v", field, err)
		}
	}
}

// serial returns the number of the certificate that a server with the configuration shows now.
func serial(t *testing.T, server *tls.Config) int64 {
	t.Helper()
	c, err := server.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return leaf.SerialNumber.Int64()
}

func TestAReplacedCertificateIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, dir, next := peernettest.NewAuthority(t), t.TempDir(), t.TempDir()
		server, client, err := peernet.LoadTLS(ca.Write(t, dir, "n1", 5))
		if err != nil {
			t.Fatal(err)
		}
		ca.Write(t, next, "n1", 6)
		// replace moves one of the new files over the old one.
		replace := func(file string) {
			t.Helper()
			path := filepath.Join(dir, file)
			if err := os.Rename(filepath.Join(next, file), path); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, time.Time{}, time.Now()); err != nil { // the bubble's clock: not when it was first written
				t.Fatal(err)
			}
		}
		want := func(what string, number int64) {
			t.Helper()
			if got := serial(t, server); got != number {
				t.Errorf("%s: certificate %d is shown, want %d", what, got, number)
			}
		}
		time.Sleep(time.Minute)
		want("unchanged", 5)
		replace("node.crt")
		want("too early to look again", 5)
		time.Sleep(time.Minute)
		want("without its key", 5)
		replace("node.key")
		time.Sleep(time.Minute)
		want("replaced", 6)
		c, err := client.GetClientCertificate(nil)
		if shown, _ := server.GetCertificate(nil); err != nil || c != shown {
			t.Errorf("dialling, the node shows another certificate: %v", err)
		}
		if err := os.Remove(filepath.Join(dir, "node.crt")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		want("gone", 6)
	})
}

// A certificate that is replaced counts from the next connection on, in both directions.
func TestANodeLivesThroughANewCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, net: peernettest.New()}
		ca, foreign, dir := peernettest.NewAuthority(t), peernettest.NewAuthority(t), t.TempDir()
		var err error
		one := w.open("n1", func(c *peernet.Config) {
			if c.ServerTLS, c.ClientTLS, err = peernet.LoadTLS(ca.Write(t, dir, "n1", 2)); err != nil {
				t.Fatal(err)
			}
		})
		two := w.open("n2", func(c *peernet.Config) { equip(t, c, ca, "n2") })
		echo(t, one, "x")
		echo(t, two, "x")
		old, err := two.Dial(t.Context(), "n1", "x")
		if err != nil {
			t.Fatal(err)
		}
		replace := func(by *peernettest.Authority) {
			other := t.TempDir()
			by.Write(t, other, "n1", 3)
			for _, file := range []string{"node.key", "node.crt"} {
				if err := os.Rename(filepath.Join(other, file), filepath.Join(dir, file)); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Minute)
		}
		replace(ca)
		for _, d := range []struct {
			from *peernet.Net
			to   string
		}{{one, "n2"}, {two, "n1"}} {
			c, err := d.from.Dial(t.Context(), d.to, "x")
			if err != nil {
				t.Fatalf("with a new certificate, to %s: %v", d.to, err)
			}
			say(t, c, "anew")
			_ = c.Close()
		}
		replace(foreign) // as a check that it is the new one that is shown
		if _, err := one.Dial(t.Context(), "n2", "x"); err == nil {
			t.Error("a node was let in with a foreign certificate")
		}
		if _, err := two.Dial(t.Context(), "n1", "x"); err == nil {
			t.Error("a foreign certificate was believed")
		}
		say(t, old, "still here")
		_ = old.Close()
	})
}

func TestBadCertificatesAreNamed(t *testing.T) {
	ca, dir, other := peernettest.NewAuthority(t), t.TempDir(), t.TempDir()
	cert, key, authority := ca.Write(t, dir, "n1", 1)
	_, otherKey, _ := ca.Write(t, other, "n1", 1)
	missing := filepath.Join(dir, "missing")
	for _, c := range []struct {
		what, cert, key, ca string
		want                []string
	}{
		{"no key", cert, "", authority, []string{"all three"}},
		{"no file", missing, key, authority, []string{missing}},
		{"no file of the key", cert, missing, authority, []string{missing}},
		{"no authority", cert, key, missing, []string{missing}},
		{"an authority that is a key", cert, key, key, []string{key, "no certificate"}},
		{"a key that is a certificate", cert, cert, authority, []string{"certificate " + cert, "key " + cert}},
		{"the key of another", cert, otherKey, authority, []string{cert, otherKey, "does not match"}},
	} {
		_, _, err := peernet.LoadTLS(c.cert, c.key, c.ca)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q is not in %v", c.what, want, err)
			}
		}
	}
}
