package peernet_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/weirdb/weir/internal/peernet"
)

// authority makes certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key, pool: x509.NewCertPool()}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(a.cert)
	return a
}

// equip gives a node's Net a certificate for the given name.
func (a *authority) equip(t *testing.T, cfg *peernet.Config, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	cert := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	cfg.ServerTLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: a.pool, ClientAuth: tls.RequireAndVerifyClientCert}
	cfg.ClientTLS = &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: a.pool}
}

func TestWithTLSANodeIsWhoItsCertificateSays(t *testing.T) {
	w := &world{t: t}
	ca, foreign := newAuthority(t), newAuthority(t)
	node := func(name, certified string, by *authority) *peernet.Net {
		return w.open(name, func(c *peernet.Config) { by.equip(t, c, certified) })
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
