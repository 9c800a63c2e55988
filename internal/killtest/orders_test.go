package killtest

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"iter"
	"maps"
	"math/rand/v2"
	"strconv"
	"time"
)

//go:embed testdata/orders.sql
var ordersSQL string

// order is a row of the stream orders; nil is NULL.
type order struct {
	Sender  string     `json:"sender"`
	N       int64      `json:"n"`
	Country *string    `json:"country"`
	Item    *int64     `json:"item"`
	Amount  *int64     `json:"amount"`
	Placed  *time.Time `json:"placed"`
}

var countries = [...]string{"AR", "BR", "CN", "DE", "EG", "FR", "GB", "IN", "JP", "KE", "NZ", "Ål|and"}

const items = 150

// firstDay is when the oldest orders were placed.
var firstDay = time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)

const days = 45

// makeOrder returns row n, from 1, of a sender: always the same one.
func makeOrder(sender string, n int64) order {
	h := fnv.New64a()
	_, _ = h.Write([]byte(sender)) // it returns no errors
	r := rand.New(rand.NewPCG(h.Sum64(), uint64(n)))
	o := order{Sender: sender, N: n}
	if r.IntN(12) != 0 {
		o.Country = new(countries[r.IntN(len(countries))])
	}
	if r.IntN(20) != 0 {
		o.Item = new(int64(r.IntN(items)))
	}
	switch r.IntN(12) {
	case 0:
	case 1:
		o.Amount = new(int64)
	default:
		o.Amount = new(r.Int64N(201) - 100)
	}
	if r.IntN(20) != 0 {
		o.Placed = new(firstDay.Add(time.Duration(r.Int64N(days*24*3600*1e6)) * time.Microsecond))
	}
	return o
}

func (o order) equal(p order) bool {
	return o.Sender == p.Sender && o.N == p.N && same(o.Country, p.Country) && same(o.Item, p.Item) && same(o.Amount, p.Amount) &&
		(o.Placed == nil) == (p.Placed == nil) && (o.Placed == nil || o.Placed.Equal(*p.Placed))
}

func same[T comparable](a, b *T) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

// dayFold and itemFold are rows of by_day and by_item.
type dayFold struct {
	orders, amounts int64
	total, least    int64
	latest          time.Time
}

type itemFold struct {
	item            string // as a key
	orders, amounts int64
	balance         int64
}

type debtFold struct{ countries, debt int64 }

// orderFold is the model of orders.sql.
type orderFold struct {
	byDay  map[string]*dayFold
	byItem map[string]*itemFold
	inDebt map[string]*itemFold // those of byItem that are negative
	debts  map[string]*debtFold // by item
}

func newOrderFold() *orderFold {
	return &orderFold{
		byDay: make(map[string]*dayFold), byItem: make(map[string]*itemFold),
		inDebt: make(map[string]*itemFold), debts: make(map[string]*debtFold),
	}
}

func keyText(s *string) string {
	if s == nil {
		return null
	}
	return strconv.Quote(*s)
}

func keyInt(n *int64) string {
	if n == nil {
		return null
	}
	return strconv.FormatInt(*n, 10)
}

func keyTime(t *time.Time) string {
	if t == nil {
		return null
	}
	return strconv.FormatInt(t.UnixMicro(), 10)
}

func (f *orderFold) apply(row any) {
	o := row.(order)
	if o.Amount == nil || *o.Amount != 0 {
		f.applyDay(o)
	}
	f.applyItem(o)
}

func (f *orderFold) applyDay(o order) {
	var day *time.Time
	if o.Placed != nil {
		day = new(o.Placed.UTC().Truncate(24 * time.Hour))
	}
	key := keyText(o.Country) + "|" + keyTime(day)
	d := f.byDay[key]
	if d == nil {
		d = &dayFold{}
		f.byDay[key] = d
	}
	d.orders++
	if o.Placed != nil && o.Placed.After(d.latest) {
		d.latest = *o.Placed
	}
	if o.Amount != nil {
		if d.amounts == 0 || *o.Amount < d.least {
			d.least = *o.Amount
		}
		d.amounts++
		d.total += *o.Amount
	}
}

func (f *orderFold) applyItem(o order) {
	item := keyInt(o.Item)
	key := item + "|" + keyText(o.Country)
	it := f.byItem[key]
	if it == nil {
		it = &itemFold{item: item}
		f.byItem[key] = it
	}
	f.debt(it, -1)
	it.orders++
	if o.Amount != nil {
		it.amounts++
		it.balance += *o.Amount
	}
	f.debt(it, 1)
	if it.amounts > 0 && it.balance < 0 {
		f.inDebt[key] = it
	} else {
		delete(f.inDebt, key)
	}
}

// debt puts a row into debts, or takes it out.
func (f *orderFold) debt(it *itemFold, sign int64) {
	if it.amounts == 0 || it.balance >= -100 {
		return
	}
	d := f.debts[it.item]
	if d == nil {
		d = &debtFold{}
		f.debts[it.item] = d
	}
	d.countries += sign
	d.debt += sign * it.balance
	if d.countries == 0 {
		delete(f.debts, it.item)
	}
}

func nullable(n, count int64) string {
	if count == 0 {
		return null
	}
	return strconv.FormatInt(n, 10)
}

func (f *orderFold) row(table, key string) (string, bool) {
	switch table {
	case "by_day":
		d, ok := f.byDay[key]
		if !ok {
			return "", false
		}
		latest := null
		if !d.latest.IsZero() {
			latest = strconv.FormatInt(d.latest.UnixMicro(), 10)
		}
		return fmt.Sprintf("%s|%d|%s|%s|%s", key, d.orders, nullable(d.total, d.amounts), nullable(d.least, d.amounts), latest), true
	case "by_item":
		it, ok := f.byItem[key]
		if !ok {
			return "", false
		}
		return fmt.Sprintf("%s|%d|%s", key, it.orders, nullable(it.balance, it.amounts)), true
	case "in_debt":
		it, ok := f.inDebt[key]
		if !ok {
			return "", false
		}
		return fmt.Sprintf("%s|%d", key, it.balance), true
	case "debts":
		d, ok := f.debts[key]
		if !ok {
			return "", false
		}
		return fmt.Sprintf("%s|%d|%d", key, d.countries, d.debt), true
	}
	panic("no table " + table)
}

func (f *orderFold) keys(table string) iter.Seq[string] {
	switch table {
	case "by_day":
		return maps.Keys(f.byDay)
	case "by_item":
		return maps.Keys(f.byItem)
	case "in_debt":
		return maps.Keys(f.inDebt)
	case "debts":
		return maps.Keys(f.debts)
	}
	panic("no table " + table)
}

func (f *orderFold) grown(table, key string) int64 {
	switch table {
	case "by_day":
		if d := f.byDay[key]; d != nil {
			return d.orders
		}
	case "by_item":
		if it := f.byItem[key]; it != nil {
			return it.orders
		}
	}
	return 0
}

// totals returns what totalsSQL asks for: the rows, and the sum of a column.
func (f *orderFold) totals(table string) string {
	var rows, sum int64
	for key := range f.keys(table) {
		rows++
		switch table {
		case "by_day":
			sum += f.byDay[key].orders
		case "by_item":
			sum += f.byItem[key].orders
		case "in_debt":
			sum += f.inDebt[key].balance
		case "debts":
			sum += f.debts[key].countries
		}
	}
	return fmt.Sprintf("%d|%s", rows, nullable(sum, rows))
}

// orderLog checks the log of the stream orders, whose rows say which they are.
type orderLog struct {
	senders map[string]*senderLog
}

type senderLog struct {
	last  map[int]int64 // highest number per shard
	seen  []bool        // by number - 1
	count int
}

func newOrderLog() *orderLog { return &orderLog{senders: make(map[string]*senderLog)} }

func (l *orderLog) read(shard int, _ uint64, text []byte) (any, error) {
	var o order
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, err
	}
	s := l.senders[o.Sender]
	if s == nil {
		s = &senderLog{last: make(map[int]int64)}
		l.senders[o.Sender] = s
	}
	if o.N < 1 {
		return nil, fmt.Errorf("row %d of %s", o.N, o.Sender)
	}
	for int64(len(s.seen)) < o.N {
		s.seen = append(s.seen, false)
	}
	switch {
	case s.seen[o.N-1]:
		return nil, fmt.Errorf("row %d of %s is there twice", o.N, o.Sender)
	case o.N <= s.last[shard]:
		return nil, fmt.Errorf("row %d of %s stands behind row %d", o.N, o.Sender, s.last[shard])
	}
	if want := makeOrder(o.Sender, o.N); !o.equal(want) {
		return nil, fmt.Errorf("row %d of %s is not what was sent: %s", o.N, o.Sender, text)
	}
	s.seen[o.N-1], s.last[shard] = true, o.N
	s.count++
	return o, nil
}

func (l *orderLog) holds(sender string, n int) error {
	s := l.senders[sender]
	for i := range n {
		if s == nil || i >= len(s.seen) || !s.seen[i] {
			return fmt.Errorf("row %d of %d acknowledged rows of %s is not there", i+1, n, sender)
		}
	}
	return nil
}

func (l *orderLog) count(sender string) int {
	if s := l.senders[sender]; s != nil {
		return s.count
	}
	return 0
}
