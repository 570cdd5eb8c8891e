// Package pdftext takes the text out of PDF files, page by page.
//
// A PDF is a program in a format that nobody reads right, so it is read by a small process
// of its own: this program executed anew, with nothing but the file, a bound on its memory and
// processor time, and an end when its owner ends or has enough. [Main] has to be called at the
// beginning of main, and of TestMain.
//
// Text is laid out by where it stands: lines by their height on the page, in the order in which
// the file draws them. Scanned pages have no text.
//
// # Protocol
//
// File 3 of the process is the PDF; its arguments are the first page, the last, and how many bytes it
// may allocate. It writes
// "pages N", and for each page "page N SIZE" and that many bytes of text, or "failed N SIZE"
// and a sentence.
package pdftext

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Limits of what is read.
const (
	// MaxFile is the largest PDF, in bytes.
	MaxFile = 256 << 20
	// MaxPage is the longest text of a page, in bytes; more is left out, with a remark.
	MaxPage = 1 << 20
	// deadline is how long one call may take.
	deadline = 30 * time.Second
)

// memory is what the process may allocate, in bytes. Tests give it less.
var memory uint64 = 768 << 20

// name is argument 0 of the process. No program is called so.
const name = "agentrun-pdf"

// Errors.
var (
	// ErrNoMain is returned in a program whose main does not call Main.
	ErrNoMain = errors.New("this program can not read PDF: its main has to call read.Main first")
	// ErrDamaged is returned for what cannot be read as PDF.
	ErrDamaged = errors.New("it cannot be read as PDF")
	// ErrTooMuch is returned for a file that takes more time or memory than it may.
	ErrTooMuch = errors.New("it takes more time or memory than a PDF may: pdftotext may do better")
)

var hasMain bool

// Main must be called at the beginning of main. In a process that was started to read a PDF it
// does not return.
func Main() {
	if len(os.Args) > 0 && os.Args[0] == name {
		os.Exit(serve(os.Args[1:]))
	}
	hasMain = true
}

// Page is the text of a page.
type Page struct {
	Number int
	Text   string
	Err    error // why there is none
}

// Read calls page for the pages from first to last, those there are, until it returns false, and
// returns how many pages the file has.
func Read(caller context.Context, f *os.File, first, last int, page func(Page) bool) (pages int, err error) {
	if !hasMain {
		return 0, ErrNoMain
	}
	if info, err := f.Stat(); err != nil {
		return 0, fmt.Errorf("reading the PDF: %w", err)
	} else if info.Size() > MaxFile {
		return 0, fmt.Errorf("it has more than the 256 MiB that are read: %w", ErrDamaged)
	}
	ctx, cancel := context.WithTimeout(caller, deadline)
	defer cancel()
	// The process ends with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args = []string{name, strconv.Itoa(first), strconv.Itoa(last), strconv.FormatUint(memory, 10)}
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{f}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, fmt.Errorf("reading the PDF: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("starting a process to read the PDF: %w", err)
	}
	pages, enough, err := receive(bufio.NewReader(out), first, page)
	if enough {
		cancel()
	}
	werr := cmd.Wait()
	switch {
	case enough:
		return pages, nil
	case caller.Err() != nil:
		return pages, fmt.Errorf("reading the PDF: %w", caller.Err())
	case ctx.Err() != nil, killed(werr):
		return pages, ErrTooMuch
	}
	return pages, err
}

// killed reports whether a process was ended by a bound.
func killed(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.ExitCode() != 0
}

// receive takes what the process writes.
func receive(in *bufio.Reader, first int, page func(Page) bool) (pages int, enough bool, err error) {
	for next := first; ; {
		line, err := in.ReadString('\n')
		if err != nil {
			if pages == 0 {
				return 0, false, ErrDamaged
			}
			return pages, false, nil
		}
		fields := strings.Fields(line)
		if len(fields) == 2 && fields[0] == "pages" {
			if pages, err = strconv.Atoi(fields[1]); err != nil || pages <= 0 {
				return 0, false, ErrDamaged
			}
			continue
		}
		if len(fields) != 3 {
			return pages, false, ErrDamaged
		}
		number, err1 := strconv.Atoi(fields[1])
		size, err2 := strconv.Atoi(fields[2])
		if err1 != nil || err2 != nil || size < 0 || size > MaxPage+1<<10 || number != next && number != 0 {
			return pages, false, ErrDamaged
		}
		text := make([]byte, size)
		if _, err := io.ReadFull(in, text); err != nil {
			return pages, false, ErrDamaged
		}
		if number == 0 {
			return pages, false, fmt.Errorf("%w: %s", ErrDamaged, strings.ToValidUTF8(string(text), ""))
		}
		next++
		p := Page{Number: number, Text: string(text)}
		if fields[0] == "failed" {
			p.Text, p.Err = "", fmt.Errorf("page %d cannot be read: %s", number, text)
		}
		if !page(p) {
			return pages, true, nil
		}
	}
}
