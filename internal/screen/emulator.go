package screen

import (
	"errors"
	"reflect"
	"unsafe"

	"github.com/gdamore/tcell/v3/vt"
)

// emulator drives the state machine of tcell's vt a byte at a time.
//
// The package offers a goroutine of its own that takes the bytes from a channel. Nothing could recover from a panic in
// it, so that bytes of a stranger might end this process, and the screen would not be known behind each byte. Therefore
// the function that takes a byte, the field inb, is called from here; where a later version has no such field there is
// no screen ([errNoEmulator]), and a test says so.
type emulator struct {
	vt   vt.Emulator
	step *func(byte) // the machine puts another function here with each change of state
}

var errNoEmulator = errors.New("the terminal emulator can not be driven")

// newEmulator starts nothing: an emulator that was never started answers no queries of programs.
func newEmulator(b vt.Backend) (emulator, error) {
	em := vt.NewEmulator(b)
	v := reflect.ValueOf(em)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return emulator{}, errNoEmulator
	}
	f := v.Elem().FieldByName("inb")
	if !f.IsValid() || f.Type() != reflect.TypeFor[func(byte)]() {
		return emulator{}, errNoEmulator
	}
	e := emulator{vt: em, step: (*func(byte))(unsafe.Pointer(f.UnsafeAddr()))}
	e.feed("\x1b7") // one that restores what was never saved panics
	return e, nil
}

// feed takes a sequence of our own.
func (e *emulator) feed(s string) {
	for i := range len(s) {
		(*e.step)(s[i])
	}
}
