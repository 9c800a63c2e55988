package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"

	"github.com/weirdb/weir/internal/peernet"
	"github.com/weirdb/weir/node"
)

// envPrefix begins the names of the server's environment variables.
const envPrefix = "WEIR_SERVER_"

// defaultDataDir is relative: a server that is tried out leaves its data where it was started.
const defaultDataDir = "weir-data"

// serverSettings are the server's settings, one flag each.
type serverSettings struct {
	config     string
	dataDir    string
	nodeID     string
	shards     int
	httpAddr   string
	grpcAddr   string
	respAddr   string
	peerAddr   string
	advertise  string
	join       string
	expect     int
	peerCert   string
	peerKey    string
	peerCA     string
	insecure   bool
	reflection bool
	faults     bool
	memory     byteSize
	stateCache byteSize
	queryMem   byteSize
	watchMem   byteSize
	watchKept  time.Duration
	minFree    byteSize
	logLevel   string
	logFormat  string
	tuning     node.Tuning
	phaseFile  string
	faultFile  string
	faultDisk  bool
}

// newServerSettings defines the flags. Their names are also the keys of the file, and with underscores and the prefix
// the names of the environment's variables.
func newServerSettings(f *pflag.FlagSet) *serverSettings {
	s := &serverSettings{stateCache: 64 << 20, queryMem: 512 << 20, logLevel: "info", logFormat: "text"}
	f.StringVar(&s.config, "config", "", "YAML file of settings")
	f.StringVar(&s.dataDir, "data-dir", defaultDataDir, "directory that holds everything durable")
	f.StringVar(&s.nodeID, "node-id", node.DefaultNodeID, "name of this node, for good")
	f.IntVar(&s.shards, "shards", 0, "number of shards of a new group, fixed afterwards; 0 = what is there, or 8")
	f.StringVar(&s.httpAddr, "http-addr", node.DefaultHTTPAddr, "where to listen for HTTP")
	f.StringVar(&s.grpcAddr, "grpc-addr", node.DefaultGRPCAddr, "where to listen for gRPC")
	f.StringVar(&s.respAddr, "resp-addr", "", "where to listen for Redis clients, which read tables (docs/resp.md), for example 127.0.0.1:6380; empty = nowhere")
	f.StringVar(&s.peerAddr, "peer-addr", "", "where to listen for the other nodes of the group, for example 127.0.0.1:7712; empty = the group is this node alone")
	f.StringVar(&s.advertise, "advertise", "", "host by which other nodes and clients reach this one; empty = the one of each address")
	f.StringVar(&s.join, "join", "", "peer addresses of nodes of the group, comma-separated; the same list on each node that founds it")
	f.IntVar(&s.expect, "bootstrap-expect", 0, "how many nodes found a new group: all of --join; 0 = this node founds none")
	f.StringVar(&s.peerCert, "peer-cert", "", "PEM file of this node's certificate for other nodes, whose DNS name is the node's; read again when it changes")
	f.StringVar(&s.peerKey, "peer-key", "", "PEM file of its key")
	f.StringVar(&s.peerCA, "peer-ca", "", "PEM file of the authority that signs the nodes' certificates")
	f.BoolVar(&s.insecure, "allow-insecure", false, "listen on addresses that others can reach, without TLS and authentication")
	f.BoolVar(&s.reflection, "reflection", false, "answer gRPC reflection")
	f.BoolVar(&s.faults, "allow-fault-injection", false, "let clients crash pipelines, for tests")
	f.Var(&s.memory, "memory", "memory for live tables, for all pipelines together; keys beyond it are looked up on disk; 0 = half of the machine's")
	f.Var(&s.stateCache, "state-cache", "memory for cached blocks of state, for all shards together")
	f.Var(&s.queryMem, "query-memory", "memory for queries, scans and look-ups of several keys together: a query takes 64 MiB, others wait")
	f.Var(&s.watchMem, "watch-memory", "memory for the changes of watched tables, for all together; 0 = 1GiB, or an eighth of the machine's")
	f.DurationVar(&s.watchKept, "watch-retained", node.DefaultWatchRetained, "how long the changes of a watched table are kept for who was away")
	f.Var(&s.minFree, "min-free-disk", "free bytes of the data directory's disk below which rows are refused (DISK_LOW); 0 = 5 % of the disk, within 256 MiB and 2 GiB")
	f.Var(choice{&s.logLevel, []string{"debug", "info", "warn", "error"}}, "log-level", "least level that is logged")
	f.Var(choice{&s.logFormat, []string{"text", "json"}}, "log-format", "form of the log")
	addTuning(f, s)
	return s
}

// notSettings are the flags that stand on the command line only.
var notSettings = [...]string{"config", "print-config", "help"}

func settingNames(f *pflag.FlagSet) []string {
	var names []string
	f.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(notSettings[:], f.Name) {
			names = append(names, f.Name)
		}
	})
	return names
}

// load completes the flags from the environment and the file, and returns where each setting comes from. All mistakes
// are reported together, each with its place.
func (s *serverSettings) load(f *pflag.FlagSet, environ func() []string) (sources map[string]string, err error) {
	names := settingNames(f)
	k := koanf.New(".")
	sources = make(map[string]string)
	var errs []error
	note := func(layer *koanf.Koanf, source string, spell func(string) string) {
		for _, key := range layer.Keys() {
			if !slices.Contains(names, key) {
				errs = append(errs, fmt.Errorf("%s: unknown setting %s%s", source, spell(key), nearest(key, names, spell)))
				continue
			}
			sources[key] = source
		}
		errs = append(errs, k.Merge(layer))
	}

	fromEnv := koanf.New(".")
	err = fromEnv.Load(env.Provider(".", env.Opt{Prefix: envPrefix, EnvironFunc: environ, TransformFunc: func(key, value string) (string, any) {
		return strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(key, envPrefix)), "_", "-"), value
	}}), nil)
	if err != nil {
		return nil, fmt.Errorf("read the environment: %w", err)
	}
	if !f.Changed("config") && fromEnv.Exists("config") {
		s.config = fromEnv.String("config")
	}
	fromEnv.Delete("config")

	if s.config != "" {
		fromFile := koanf.New(".")
		if err := fromFile.Load(file.Provider(s.config), yaml.Parser()); err != nil {
			return nil, fmt.Errorf("read %s: %w", s.config, err)
		}
		note(fromFile, s.config, strconv.Quote)
	}
	note(fromEnv, "environment", envName)

	fromFlags := koanf.New(".")
	if err := fromFlags.Load(posflag.ProviderWithFlag(f, ".", k, func(pf *pflag.Flag) (string, any) {
		if !pf.Changed || !slices.Contains(names, pf.Name) {
			return "", nil
		}
		return pf.Name, pf.Value.String()
	}), nil); err != nil {
		return nil, fmt.Errorf("read the flags: %w", err)
	}
	note(fromFlags, "flag", func(key string) string { return "--" + key })

	for _, name := range names {
		source := sources[name]
		if source == "" || source == "flag" {
			continue
		}
		value, err := single(k.Get(name))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", source, name, err))
			continue
		}
		if err := f.Set(name, value); err != nil {
			var bad *pflag.InvalidValueError
			if errors.As(err, &bad) {
				err = describeValue(bad)
			}
			errs = append(errs, fmt.Errorf("%s: %s: %w", source, name, err))
		}
	}
	return sources, errors.Join(errs...)
}

// single returns a setting's value as a flag would have it. YAML has values that no flag has.
func single(v any) (string, error) {
	switch v := v.(type) {
	case string, bool, int, int64, uint64, float64:
		return fmt.Sprint(v), nil
	case nil:
		return "", errors.New("it has no value")
	case []any:
		return "", errors.New("it is a list, and the setting has one value")
	default:
		return "", fmt.Errorf("it is a %T, and the setting has one value", v)
	}
}

func envName(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, "-", "_"))
}

// nearest suggests the setting that was probably meant.
func nearest(key string, names []string, spell func(string) string) string {
	best, least := "", 3
	for _, n := range names {
		if d := distance(key, n); d < least {
			best, least = n, d
		}
	}
	if best == "" {
		return ""
	}
	return "; is it " + spell(best) + "?"
}

// distance is the number of characters to change, add or remove between a and b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// print writes the settings as a file that would give them, with the source of each.
func (s *serverSettings) print(f *pflag.FlagSet, sources map[string]string) []byte {
	var b bytes.Buffer
	names := settingNames(f)
	sort.Strings(names)
	for _, n := range names {
		value := f.Lookup(n).Value.String()
		if f.Lookup(n).Value.Type() == "string" {
			value = strconv.Quote(value)
		}
		source := sources[n]
		if f.Lookup(n).Hidden && source == "" {
			continue
		}
		if source == "" {
			source = "default"
		}
		fmt.Fprintf(&b, "%s: %s # %s\n", n, value, source)
	}
	return b.Bytes()
}

// node returns the settings as a node's configuration, checked.
func (s *serverSettings) node() (node.Config, error) {
	cfg := node.Config{
		DataDir: s.dataDir, NodeID: s.nodeID, Shards: s.shards, HTTPAddr: s.httpAddr, GRPCAddr: s.grpcAddr, RESPAddr: s.respAddr, AllowInsecure: s.insecure,
		Reflection: s.reflection, FaultInjection: s.faults, MemoryBytes: int64(s.memory), StateCacheBytes: int64(s.stateCache), QueryMemoryBytes: int64(s.queryMem), WatchMemoryBytes: int64(s.watchMem), WatchRetained: s.watchKept, MinFreeDisk: int64(s.minFree), Tuning: s.tuning, PhaseFile: s.phaseFile, FaultFile: s.faultFile, FaultDisk: s.faultDisk,
		PeerAddr: s.peerAddr, Advertise: s.advertise, BootstrapExpect: s.expect,
	}
	for a := range strings.SplitSeq(s.join, ",") {
		if a = strings.TrimSpace(a); a != "" {
			cfg.Join = append(cfg.Join, a)
		}
	}
	if s.peerCert != "" || s.peerKey != "" || s.peerCA != "" {
		var err error
		if cfg.PeerServerTLS, cfg.PeerClientTLS, err = peernet.LoadTLS(s.peerCert, s.peerKey, s.peerCA); err != nil {
			return cfg, fmt.Errorf("certificates for other nodes: %w", err)
		}
	}
	return cfg, cfg.Validate()
}

func (s *serverSettings) logger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(s.logLevel)) // the flag admits only levels
	o := &slog.HandlerOptions{Level: level}
	if s.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// byteSize is a number of bytes as a flag: 67108864, 64MiB, 64 MB.
type byteSize int64

func (b byteSize) String() string {
	for _, u := range byteUnits {
		if u.size >= 1024 && u.size%1024 == 0 && int64(b) >= u.size && int64(b)%u.size == 0 {
			return fmt.Sprintf("%d%s", int64(b)/u.size, u.name)
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

func (b *byteSize) Type() string { return "bytes" }

func (b *byteSize) Set(s string) error {
	number, size := strings.TrimSpace(s), int64(1)
	for _, u := range byteUnits {
		if n, ok := strings.CutSuffix(strings.ToLower(number), strings.ToLower(u.name)); ok {
			number, size = strings.TrimSpace(n), u.size
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > (1<<62)/size {
		return fmt.Errorf("%q is not a number of bytes such as 64MiB", s)
	}
	*b = byteSize(n * size)
	return nil
}

// byteUnits are tried in order: longer names before their endings.
var byteUnits = [...]struct {
	name string
	size int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1},
}
