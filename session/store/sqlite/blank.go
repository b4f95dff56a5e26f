package sqlite

import "encoding/binary"

// Types of b-tree pages, as SQLite's file format has them.
const (
	indexInterior = 2
	tableInterior = 5
	indexLeaf     = 10
	tableLeaf     = 13
)

// cell is what a page of a b-tree has of an entry.
type cell struct {
	size  int    // bytes on the page
	rest  int    // bytes of the payload on overflow pages
	first uint32 // the first of these, 0 for none
}

// blankTree overwrites with zeros what a page of a b-tree does not use: the gap between the cell pointers
// and the cells, what is left over between cells, and the bodies of freeblocks. at is where the header
// begins, usable how many bytes of the page SQLite uses. A page that is not as SQLite writes them is not
// changed, and ok is false.
func blankTree(page []byte, at, usable int) (changed, ok bool) {
	cells, ok := cellsOf(page, at, usable)
	if !ok {
		return false, false
	}
	content := contentOf(page, at)
	used := make([]bool, usable) // the bytes of cells and freeblocks
	free := content              // the first byte that the next freeblock may have
	for p, c := range cells {
		if !claim(used, p, c.size) {
			return false, false
		}
	}
	var blocks [][]byte // bodies of freeblocks
	for p := be16(page, at+1); p != 0; p = be16(page, p) {
		if p < free || p+4 > usable {
			return false, false
		}
		size := be16(page, p+2)
		if size < 4 || !claim(used, p, size) {
			return false, false
		}
		free = p + size
		blocks = append(blocks, page[p+4:p+size])
	}
	fragments := 0
	for _, u := range used[content:] {
		if !u {
			fragments++
		}
	}
	if fragments != int(page[at+7]) {
		return false, false
	}
	for _, b := range blocks {
		changed = zero(b) || changed
	}
	_, array, _ := arrayOf(page, at)
	changed = zero(page[array:content]) || changed
	for p := content; p < usable; p++ {
		if !used[p] && page[p] != 0 {
			page[p], changed = 0, true
		}
	}
	return changed, true
}

// claim marks bytes as used, unless one of them is used already or does not exist.
func claim(used []bool, p, n int) bool {
	if n > len(used)-p {
		return false
	}
	for i := range used[p : p+n] {
		if used[p+i] {
			return false
		}
		used[p+i] = true
	}
	return true
}

// contentOf returns where the area of the cells begins.
func contentOf(page []byte, at int) int {
	if n := be16(page, at+5); n > 0 {
		return n
	}
	return 1 << 16
}

// arrayOf returns where the pointers to the cells begin and end. ok is false for what is no page of a
// b-tree.
func arrayOf(page []byte, at int) (begin, end int, ok bool) {
	switch page[at] {
	case indexInterior, tableInterior:
		begin = at + 12
	case indexLeaf, tableLeaf:
		begin = at + 8
	default:
		return 0, 0, false
	}
	return begin, begin + 2*be16(page, at+3), true
}

// cellsOf returns the cells of a page of a b-tree by their places. ok is false if one of them cannot be.
func cellsOf(page []byte, at, usable int) (cells map[int]cell, ok bool) {
	if usable > len(page) || at+12 > usable {
		return nil, false
	}
	begin, end, ok := arrayOf(page, at)
	content := contentOf(page, at)
	if !ok || end > content || content > usable {
		return nil, false
	}
	cells = make(map[int]cell, (end-begin)/2)
	for i := begin; i < end; i += 2 {
		p := be16(page, i)
		if p < content || p >= usable {
			return nil, false
		}
		if _, ok := cells[p]; ok {
			return nil, false
		}
		c, ok := cellAt(page[p:usable], page[at], usable)
		if !ok {
			return nil, false
		}
		cells[p] = c
	}
	return cells, true
}

// cellAt reads the cell that b begins with, on a page of a type.
func cellAt(b []byte, kind byte, usable int) (c cell, ok bool) {
	i := 0
	if kind == indexInterior || kind == tableInterior {
		i = 4 // the child
	}
	payload, n := varint(b, i)
	if n == 0 {
		return cell{}, false
	}
	i += n
	if kind == tableInterior { // it was the key, and there is no payload
		return sized(b, cell{size: i})
	}
	most, least := (usable-12)*64/255-23, (usable-12)*32/255-23
	if kind == tableLeaf {
		if _, n = varint(b, i); n == 0 {
			return cell{}, false
		}
		i += n
		most = usable - 35
	}
	if payload > 1<<31-1 || least <= 0 {
		return cell{}, false
	}
	local := int(payload)
	if local <= most {
		return sized(b, cell{size: i + local})
	}
	if local = least + (local-least)%(usable-4); local > most {
		local = least
	}
	if i+local+4 > len(b) {
		return cell{}, false
	}
	return cell{size: i + local + 4, rest: int(payload) - local, first: binary.BigEndian.Uint32(b[i+local:])}, true
}

// sized returns c with the least size that SQLite gives a cell, if it is within b.
func sized(b []byte, c cell) (cell, bool) {
	c.size = max(c.size, 4)
	return c, c.size <= len(b)
}

// restOf returns how many bytes of a payload are on overflow pages of which the first is given; page is of
// the b-tree that they belong to.
func restOf(page []byte, at, usable int, first uint32) (rest int, ok bool) {
	cells, ok := cellsOf(page, at, usable)
	if !ok {
		return 0, false
	}
	for _, c := range cells {
		if c.rest > 0 && c.first == first {
			return c.rest, true
		}
	}
	return 0, false
}

// varint reads a number of at most nine bytes from b at i; n is 0 if b ends before it.
func varint(b []byte, i int) (v uint64, n int) {
	for n < 8 && i+n < len(b) {
		c := b[i+n]
		n++
		v = v<<7 | uint64(c&0x7f)
		if c < 0x80 {
			return v, n
		}
	}
	if n < 8 || i+n >= len(b) {
		return 0, 0
	}
	return v<<8 | uint64(b[i+n]), n + 1
}

// zero overwrites b with zeros and reports whether there was anything else in it.
func zero(b []byte) (changed bool) {
	for i := range b {
		if b[i] != 0 {
			b[i], changed = 0, true
		}
	}
	return changed
}

func be16(b []byte, i int) int { return int(binary.BigEndian.Uint16(b[i:])) }
