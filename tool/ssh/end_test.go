package ssh

import (
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentrun/agentrun/tool/bash"
)

func TestAHostThatTellsThatItEndsProcessesIsWaitedForThoughNotForEver(t *testing.T) {
	for _, tt := range []struct {
		name        string
		every, want time.Duration
		times       int // then the client has ended
	}{
		{"one that is silent", time.Hour, untilGone, 0},
		{"one that is done at once", 0, 0, 0},
		{"one that takes its time", 9 * time.Second, 36 * time.Second, 3},
		{"one that tells it for ever", 9 * time.Second, untilLeft, 1000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				orders, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer orders.Close()
				impatient, sent := make(chan struct{}), make(chan struct{})
				close(impatient)
				close(sent)
				x := &run{s: &bash.Script{Kill: impatient}, orders: orders, events: newEvents(), kill: make(chan struct{}), done: make(chan struct{})}
				var host sync.WaitGroup
				defer host.Wait()
				host.Go(func() {
					for range tt.times {
						time.Sleep(tt.every)
						x.events.told("ending")
						if is(x.kill) {
							return
						}
					}
					time.Sleep(tt.every)
					close(x.done)
				})
				if tt.every == 0 {
					synctest.Wait()
				}
				began := time.Now()
				x.end(sent)
				if took := time.Since(began); took != tt.want {
					t.Errorf("it was waited for %v, want %v", took, tt.want)
				}
			})
		})
	}
}
