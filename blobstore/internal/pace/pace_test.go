package pace_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentrun/agentrun/blobstore/internal/pace"
)

func TestATransferThatStallsOrTricklesIsGivenUp(t *testing.T) {
	limits := pace.Limits{Grace: 10 * time.Second, Rate: 100}
	for name, tt := range map[string]struct {
		every time.Duration
		bytes int
		after time.Duration // when it is given up; 0 is not within an hour
	}{
		"nothing moves":          {after: 10 * time.Second},
		"it moves as it should":  {every: time.Second, bytes: 100},
		"it moves in the limit":  {every: 9 * time.Second, bytes: 900},
		"a byte now and then":    {every: 5 * time.Second, bytes: 1, after: 10 * time.Second},
		"half as fast as wanted": {every: time.Second, bytes: 50, after: 18 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, watch := pace.New(t.Context(), limits)
				defer watch.Stop()
				began := time.Now()
				for time.Since(began) < time.Hour && ctx.Err() == nil {
					wait := tt.every
					if wait == 0 {
						wait = time.Hour
					}
					select {
					case <-time.After(wait):
						watch.Moved(tt.bytes)
					case <-ctx.Done():
					}
				}
				if gone := ctx.Err() != nil; gone != (tt.after > 0) {
					t.Fatalf("given up: %v (%v)", gone, context.Cause(ctx))
				}
				if tt.after > 0 && (!errors.Is(context.Cause(ctx), pace.ErrTooSlow) || time.Since(began) < tt.after || time.Since(began) > 2*tt.after) {
					t.Errorf("given up after %v with %v, want ErrTooSlow at %v", time.Since(began), context.Cause(ctx), tt.after)
				}
			})
		})
	}
}

func TestALongTransferMayNotStallForWhatItWasFasterBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, watch := pace.New(t.Context(), pace.Limits{Grace: 10 * time.Second, Rate: 100})
		defer watch.Stop()
		d := &pace.Download{ReadCloser: io.NopCloser(bytes.NewReader(make([]byte, 1<<20))), Watch: watch, Ctx: ctx}
		if _, err := io.Copy(io.Discard, d); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		<-ctx.Done()
		if waited := time.Since(began); waited != 10*time.Second {
			t.Errorf("it was waited for %v, want 10s", waited)
		}
	})
}
