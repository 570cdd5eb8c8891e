package idlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/agentrun/agentrun/blobref"
)

// Kind says what a record is about.
type Kind byte

// The kinds of records. They are on disks: a value keeps its meaning.
const (
	Queued     Kind = '+' // the blob has to go to the remote
	Done       Kind = '-' // it arrived
	Parked     Kind = '!' // it cannot go; Code says why
	Deleted    Kind = 'x' // nobody wants it any more
	Damaged    Kind = '?' // the log had damage: some blobs may be missing from it
	Reconciled Kind = '=' // whatever damage there was, the blobs are queued again
)

// Record is one line of the log.
type Record struct {
	Kind Kind
	Code byte        // of Parked: the caller's word for the reason
	Ref  blobref.Ref // zero for Damaged and Reconciled
}

// A record is written twice over, so that damage in one copy loses nothing:
//
//	0   2   "AQ"
//	2   1   version, 1
//	3   1   kind
//	4   1   code
//	5   3   zero
//	8   32  the SHA-256 that the reference names
//	40  4   CRC-32C of the bytes 0 to 40, little-endian
const (
	version    = 1
	copySize   = 44
	recordSize = 2 * copySize
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrNewer means that a newer agentrun wrote the log. Nothing was changed.
var ErrNewer = errors.New("the queue was written by a newer version; use that, or drain the queue with it first")

// errDamaged means that both copies of a record are damaged.
var errDamaged = errors.New("a record of the queue is damaged")

func appendRecord(to []byte, r Record) []byte {
	at := len(to)
	sum := r.Ref.Sum()
	to = append(to, 'A', 'Q', version, byte(r.Kind), r.Code, 0, 0, 0)
	to = append(to, sum[:]...)
	to = binary.LittleEndian.AppendUint32(to, crc32.Checksum(to[at:], castagnoli))
	return append(to, to[at:]...)
}

// parseRecord reads the recordSize bytes of a record, which are not trusted.
func parseRecord(b []byte) (Record, error) {
	r, err := parseCopy(b[:copySize])
	if errors.Is(err, errDamaged) {
		return parseCopy(b[copySize:])
	}
	return r, err
}

func parseCopy(b []byte) (Record, error) {
	body, sum := b[:copySize-4], binary.LittleEndian.Uint32(b[copySize-4:])
	if crc32.Checksum(body, castagnoli) != sum || body[0] != 'A' || body[1] != 'Q' {
		return Record{}, errDamaged
	}
	if body[2] > version {
		return Record{}, fmt.Errorf("%w (version %d)", ErrNewer, body[2])
	}
	r := Record{Kind: Kind(body[3]), Code: body[4], Ref: blobref.FromSum([32]byte(body[8:]))}
	switch r.Kind {
	case Queued, Done, Parked, Deleted:
		if r.Ref.IsZero() {
			return Record{}, errDamaged
		}
	case Damaged, Reconciled:
	default:
		return Record{}, errDamaged
	}
	return r, nil
}
