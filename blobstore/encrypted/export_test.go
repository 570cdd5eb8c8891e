package encrypted

import (
	"context"
	"encoding/binary"
	"hash/crc32"

	"github.com/agentrun/agentrun/blobref"
)

// StoredAs returns under which id of the store below a blob is stored.
func StoredAs(ctx context.Context, s *Store, ref blobref.Ref) (blobref.Ref, error) {
	_, id, err := s.target(ctx, ref)
	return id, err
}

// FixCRC makes a changed header pass for one that nobody damaged.
func FixCRC(sealed []byte) {
	binary.BigEndian.PutUint32(sealed[atCRC:], crc32.Checksum(sealed[:atCRC], castagnoli))
}
