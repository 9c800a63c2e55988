package peernet

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// reloadEvery bounds how often a certificate's file is looked at.
const reloadEvery = 10 * time.Second

// LoadTLS makes the two sides of mutual TLS between nodes from PEM files: this node's certificate and key, and the
// authority that has signed the certificates of all nodes. Certificate and key are read again when the certificate's file
// has changed; until both are whole, the ones that were read before stay.
func LoadTLS(cert, key, authority string) (server, client *tls.Config, err error) {
	if cert == "" || key == "" || authority == "" {
		return nil, nil, errors.New("name a certificate, its key and the authority, all three")
	}
	pem, err := os.ReadFile(authority)
	if err != nil {
		return nil, nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, nil, fmt.Errorf("%s holds no certificate in PEM", authority)
	}
	files := &certificate{cert: cert, key: key}
	if _, err := files.get(); err != nil {
		return nil, nil, err
	}
	server = &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return files.get() },
	}
	client = &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: pool,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return files.get() },
	}
	return server, client, nil
}

// certificate is a key pair in two files.
type certificate struct {
	cert, key string

	mu     sync.Mutex
	looked time.Time
	read   time.Time // the file's time when it was read
	pair   *tls.Certificate
}

func (c *certificate) get() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pair != nil && time.Since(c.looked) < reloadEvery {
		return c.pair, nil
	}
	c.looked = time.Now()
	info, err := os.Stat(c.cert)
	if err == nil && (c.pair == nil || !info.ModTime().Equal(c.read)) {
		var pair tls.Certificate
		if pair, err = tls.LoadX509KeyPair(c.cert, c.key); err == nil {
			c.pair, c.read = &pair, info.ModTime()
		} else {
			err = fmt.Errorf("the certificate %s with the key %s: %w", c.cert, c.key, err)
		}
	}
	if c.pair == nil {
		return nil, err
	}
	return c.pair, nil // a file that is being replaced is looked at again
}
