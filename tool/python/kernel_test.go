package python

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/agentrun/agentrun/tool/bash"
)

func TestCellsAreThoseOfANotebook(t *testing.T) {
	k := kernel(t, Options{})
	for _, c := range []struct {
		name, code, out, result string
		exit                    int
	}{
		{"a value is shown", "1+1", "2\n", "2", 0},
		{"what a cell defines the next one finds", "_ + 1", "3\n", "3", 0},
		{"a semicolon keeps a value to itself", "5 ; # so", "", "none", 0},
		{"None is not shown", "print('a'); None", "a\n", "none", 0},
		{"only the last expression is shown", "1\n2", "2\n", "2", 0},
		{"an empty cell", "", "", "none", 0},
		{"a comment", "# nothing", "", "none", 0},
		{"a statement has no value", "x = 3", "", "none", 0},
		{"functions", "def f(n):\n    return n * x\nf(2)", "6\n", "6", 0},
		{"an exception has its line", "a = 1\nb = 2\n1/0", "Traceback (most recent call last):\n  File \"<cell 10>\", line 3, in <module>\n    1/0\n    ~^~\nZeroDivisionError: division by zero\n", "none", 1},
		{"lines of earlier cells are known", "def g():\n    return f('a' + 1)\n", "", "none", 0},
		{"as here", "g()", "Traceback (most recent call last):\n  File \"<cell 12>\", line 1, in <module>\n    g()\n  File \"<cell 11>\", line 2, in g\n    return f('a' + 1)\n             ~~~~^~~\nTypeError: can only concatenate str (not \"int\") to str\n", "none", 1},
		{"a syntax error", "a = (", "  File \"<cell 13>\", line 1\n    a = (\n        ^\nSyntaxError: '(' was never closed\n", "none", 1},
		{"await", "import asyncio\nasync def h(): await asyncio.sleep(0); return 7\nawait h()", "7\n", "7", 0},
		{"a byte order mark", "\ufeff4", "4\n", "4", 0},
		{"asyncio.run too", "asyncio.run(h())", "7\n", "7", 0},
		{"sys.exit ends the cell with its code", "import sys; sys.exit(3)", "", "none", 3},
		{"and its words", "sys.exit('no')", "no\n", "none", 1},
		{"the kernel goes on", "x", "3\n", "3", 0},
		{"input fails", "input('who? ')", "EOFError: input() can ask nobody: no person is at this kernel; put the value into the code\n", "none", 1},
		{"both streams are in order", "import sys\nfor i in range(3): print(i); print(i, file=sys.stderr)", "0\n0\n1\n1\n2\n2\n", "none", 0},
		{"bytes go the same way", "print('a'); sys.stdout.buffer.write(b'b\\n'); import os; _ = os.write(1, b'c\\n')", "a\nb\nc\n", "none", 0},
		{"so do processes", "print('a'); import subprocess; _ = subprocess.run(['echo', 'b']); print('c')", "a\nb\nc\n", "none", 0},
		{"text that is no UTF-8", "print('\\udc80ä')", "\\udc80ä\n", "none", 0},
		{"the module is that of a script", "__name__", "'__main__'\n", "'__main__'", 0},
		{"long containers are spread", "{'key%d' % i: list(range(10)) for i in range(4)}", "{'key0': [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],\n 'key1': [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],\n 'key2': [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],\n 'key3': [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]}\n", "", 0},
		{"the future lasts", "from __future__ import annotations", "", "none", 0},
		{"until here", "def p(a: nothing): pass\np.__annotations__", "{'a': 'nothing'}\n", "{'a': 'nothing'}", 0},
		{"pickles know the module", "import pickle\nclass C: pass\ntype(pickle.loads(pickle.dumps(C()))) is C", "True\n", "True", 0},
		{"a fork ends with its cell", "import os\npid = os.fork()\nif pid: _ = os.waitpid(pid, 0)\nprint('parent' if pid else 'child')", "child\nparent\n", "none", 0},
	} {
		got := cell(t, k, c.code)
		out := got.out
		if strings.HasPrefix(c.out, "EOFError") {
			out = out[max(0, strings.LastIndex(out[:max(0, len(out)-1)], "\n")+1):]
		}
		if out != c.out || got.Code != c.exit || (c.result != "" && got.result() != c.result) || len(got.Notes) > 0 {
			t.Errorf("%s: exit %d, result %s, notes %q, output\n%s\nwant %d, %s\n%s", c.name, got.Code, got.result(), got.Notes, got.out, c.exit, c.result, c.out)
		}
	}
}

func TestVariablesOfOneCellAreForThatAlone(t *testing.T) {
	k := kernel(t, Options{Environ: append(os.Environ(), "OLD=as it was")})
	const look = "import os; print(os.environ.get('OLD'), os.environ.get('TOKEN'))"
	var out bytes.Buffer
	if _, _, err := k.RunCell(t.Context(), &Cell{Script: bash.Script{Text: look + "; 1/0", Env: []string{"OLD=new", "TOKEN=secret"}, Stdout: &out, Timeout: 20 * time.Second}}); err != nil || !strings.HasPrefix(out.String(), "new secret\n") {
		t.Fatalf("the cell has %q, %v", out.String(), err)
	}
	if got := cell(t, k, look); got.out != "as it was None\n" {
		t.Errorf("the next cell has %q", got.out)
	}
}
