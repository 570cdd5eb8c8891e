package encrypted

import (
	"context"

	"github.com/agentrun/agentrun/blobref"
)

// StoredAs returns under which id of the store below a blob is stored.
func StoredAs(ctx context.Context, s *Store, ref blobref.Ref) (blobref.Ref, error) {
	_, id, err := s.target(ctx, ref)
	return id, err
}
