package raftlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// checkBolt reads the bbolt file at path as bbolt would, and says what is wrong with it. bbolt takes a file's structure
// for granted: what does not fit makes it panic, also on a goroutine of its own, where nobody can recover, or read behind
// the file's end, which ends the process. An absent or empty file is sound. Nobody may write the file meanwhile.
//
// Values are the business of those who read them.
func checkBolt(path string) (err error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	m, err := readBoltMeta(f, info.Size())
	if err != nil {
		return err
	}
	c := boltChecker{file: f, size: info.Size(), meta: m, seen: make(map[uint64]bool)}
	if err := c.freelist(); err != nil {
		return fmt.Errorf("page %d: %w", m.freelist, err)
	}
	return c.bucket("", m.root)
}

// The layout of a bbolt file. Numbers have the machine's byte order.
const (
	boltMagic      = 0xED0CDAED
	boltVersion    = 2
	boltMetaSize   = 64
	boltPageHead   = 16 // id u64, flags u16, count u16, overflow u32: pages that follow this one and belong to it
	boltElement    = 16 // of a branch: pos, ksize u32, page u64; of a leaf: flags, pos, ksize, vsize u32; pos counts from the element
	boltBucketHead = 16 // root u64, sequence u64; a root of 0 has its page behind it

	boltBranch, boltLeaf, boltFreelist = 0x01, 0x02, 0x10 // flags of a page
	boltIsBucket                       = 0x01             // flag of a leaf's element
	boltNoFreelist                     = ^uint64(0)
	boltFirstPage                      = 2 // behind the two meta pages
)

// boltMeta is what a meta page says.
type boltMeta struct {
	pageSize  int64
	root      uint64
	freelist  uint64
	end, txid uint64 // end: the first page number that is not used
}

// readBoltMeta returns the newer of the two meta pages. One of them may be damaged: a crash tears the one that is written.
func readBoltMeta(f io.ReaderAt, size int64) (*boltMeta, error) {
	first, err := boltMetaAt(f, 0)
	if err != nil {
		return nil, err
	}
	var second *boltMeta
	for n := int64(1 << 10); n <= 16<<20 && n < size && second == nil; n *= 2 {
		if first != nil && n != first.pageSize {
			continue
		}
		if second, err = boltMetaAt(f, n); err != nil {
			return nil, err
		}
		if second != nil && second.pageSize != n {
			second = nil
		}
	}
	switch {
	case first == nil && second == nil:
		return nil, errors.New("neither of its two meta pages is sound")
	case first == nil || second != nil && second.txid > first.txid:
		return second, nil
	}
	return first, nil
}

// boltMetaAt reads the meta page at an offset; nil when there is no sound one.
func boltMetaAt(f io.ReaderAt, at int64) (*boltMeta, error) {
	b := make([]byte, boltMetaSize)
	if _, err := f.ReadAt(b, at+boltPageHead); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	o := binary.NativeEndian
	h := fnv.New64a()
	_, _ = h.Write(b[:56]) // a hash returns no error
	m := &boltMeta{pageSize: int64(o.Uint32(b[8:])), root: o.Uint64(b[16:]), freelist: o.Uint64(b[32:]), end: o.Uint64(b[40:]), txid: o.Uint64(b[48:])}
	if o.Uint32(b) != boltMagic || o.Uint32(b[4:]) != boltVersion || o.Uint64(b[56:]) != h.Sum64() || m.pageSize < 1<<10 {
		return nil, nil
	}
	return m, nil
}

// boltChecker walks over the pages that a file's root leads to.
type boltChecker struct {
	file io.ReaderAt
	size int64
	meta *boltMeta
	seen map[uint64]bool // pages that belong to something already
}

// page reads a page with those that belong to it.
func (c *boltChecker) page(id uint64) ([]byte, error) {
	if id < boltFirstPage || id >= c.meta.end || id >= uint64(c.size/c.meta.pageSize) {
		return nil, fmt.Errorf("it lies outside the file of %d bytes", c.size)
	}
	at := int64(id) * c.meta.pageSize
	head := make([]byte, boltPageHead)
	if _, err := c.file.ReadAt(head, at); err != nil {
		return nil, err
	}
	if self := binary.NativeEndian.Uint64(head); self != id {
		return nil, fmt.Errorf("it says it is page %d", self)
	}
	more := uint64(binary.NativeEndian.Uint32(head[12:]))
	if id+more >= c.meta.end || id+more >= uint64(c.size/c.meta.pageSize) {
		return nil, fmt.Errorf("it says that %d more belong to it, outside the file of %d bytes", more, c.size)
	}
	for p := id; p <= id+more; p++ {
		if c.seen[p] {
			return nil, errors.New("it belongs to two others")
		}
		c.seen[p] = true
	}
	b := make([]byte, int64(more+1)*c.meta.pageSize)
	if _, err := c.file.ReadAt(b, at); err != nil {
		return nil, err
	}
	return b, nil
}

// freelist checks the list of free pages, if there is one.
func (c *boltChecker) freelist() error {
	if c.meta.freelist == boltNoFreelist {
		return nil
	}
	b, err := c.page(c.meta.freelist)
	if err != nil {
		return err
	}
	o := binary.NativeEndian
	if flags := o.Uint16(b[8:]); flags != boltFreelist {
		return fmt.Errorf("it is no freelist, but has flags %#x", flags)
	}
	ids, n := b[boltPageHead:], uint64(o.Uint16(b[10:]))
	if n == 1<<16-1 { // the first element is the number
		n, ids = o.Uint64(ids), ids[8:]
	}
	if n > uint64(len(ids)/8) {
		return fmt.Errorf("it lists %d pages in %d bytes", n, len(ids))
	}
	var before uint64
	for i := range n {
		id := o.Uint64(ids[8*i:])
		if id < boltFirstPage || id >= c.meta.end || id <= before {
			return fmt.Errorf("it lists page %d behind page %d", id, before)
		}
		before = id
	}
	return nil
}

// boltBounds are the keys that a page may have: from least, which may be nil, to below end, if that is not nil.
type boltBounds struct{ least, end []byte }

// bucket checks the tree of a bucket with the given name; "" is the root's.
func (c *boltChecker) bucket(name string, root uint64) error {
	_, err := c.tree(name, root, boltBounds{})
	return err
}

// tree checks a page and those below it, and returns the last key in it.
func (c *boltChecker) tree(bucket string, id uint64, in boltBounds) (last []byte, err error) {
	b, err := c.page(id)
	if err == nil {
		last, err = c.elements(bucket, b, in)
	}
	var below *boltPageError
	if err != nil && !errors.As(err, &below) {
		err = &boltPageError{id, err}
	}
	return last, err
}

// boltPageError says which page an error is about.
type boltPageError struct {
	page uint64
	err  error
}

func (e *boltPageError) Error() string { return fmt.Sprintf("page %d: %v", e.page, e.err) }
func (e *boltPageError) Unwrap() error { return e.err }

// elements checks the elements of a branch or leaf page, which b holds.
func (c *boltChecker) elements(bucket string, b []byte, in boltBounds) (last []byte, err error) {
	o := binary.NativeEndian
	flags, count := o.Uint16(b[8:]), int(o.Uint16(b[10:]))
	if flags != boltBranch && flags != boltLeaf {
		return nil, fmt.Errorf("it is neither branch nor leaf, but has flags %#x", flags)
	}
	if boltPageHead+count*boltElement > len(b) || flags == boltBranch && count == 0 {
		return nil, fmt.Errorf("it says it has %d elements", count)
	}
	last = in.least
	for i := range count {
		key, value, err := boltPair(b, boltPageHead+i*boltElement, flags)
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
		order := bytes.Compare(last, key)
		if last != nil && (order > 0 || order == 0 && i > 0) || in.end != nil && bytes.Compare(key, in.end) >= 0 {
			return nil, fmt.Errorf("element %d: its key %x is out of order", i, key)
		}
		last = key
		e := b[boltPageHead+i*boltElement:]
		switch {
		case flags == boltBranch:
			end := in.end
			if i+1 < count {
				if end, _, err = boltPair(b, boltPageHead+(i+1)*boltElement, flags); err != nil {
					return nil, fmt.Errorf("element %d: %w", i+1, err)
				}
			}
			if last, err = c.tree(bucket, o.Uint64(e[8:]), boltBounds{key, end}); err != nil {
				return nil, err
			}
		case (o.Uint32(e)&boltIsBucket != 0) != (bucket == ""):
			return nil, fmt.Errorf("element %d: the root holds buckets, and a bucket holds values", i)
		case bucket == "":
			if err := c.nested(string(key), value); err != nil {
				return nil, fmt.Errorf("bucket %q: %w", key, err)
			}
		case bucket == boltLogs && len(key) != 8:
			return nil, fmt.Errorf("element %d: its key %x is no index", i, key)
		}
	}
	return last, nil
}

// boltPair returns the key of the element at an offset of a page, and the value if it is a leaf's.
func boltPair(b []byte, at int, flags uint16) (key, value []byte, err error) {
	o := binary.NativeEndian
	e := b[at:]
	pos, ksize, vsize := int64(o.Uint32(e)), int64(o.Uint32(e[4:])), int64(0)
	if flags == boltLeaf {
		pos, ksize, vsize = int64(o.Uint32(e[4:])), int64(o.Uint32(e[8:])), int64(o.Uint32(e[12:]))
	}
	if pos < boltElement || pos+ksize+vsize > int64(len(e)) {
		return nil, nil, fmt.Errorf("it has %d bytes of key and %d of value at %d, outside the page", ksize, vsize, pos)
	}
	return e[pos : pos+ksize], e[pos+ksize : pos+ksize+vsize], nil
}

// nested checks a bucket that is an element of the root.
func (c *boltChecker) nested(name string, value []byte) error {
	if len(value) < boltBucketHead {
		return fmt.Errorf("it has %d bytes", len(value))
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return c.bucket(name, root)
	}
	inline := value[boltBucketHead:]
	if len(inline) < boltPageHead || binary.NativeEndian.Uint16(inline[8:]) != boltLeaf {
		return errors.New("its page is no leaf")
	}
	_, err := c.elements(name, inline, boltBounds{})
	return err
}
