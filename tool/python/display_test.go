package python

import (
	"bytes"
	"context"
	"image"
	"os/exec"
	"strings"
	"testing"
)

func TestValuesAreShownInTheirBestForm(t *testing.T) {
	k := kernel(t, Options{})
	cell(t, k, `
class H:
    def _repr_html_(self): return "<style>x</style><h1>Title</h1><table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2 &lt; 3</td></tr></table><script>alert(1)</script>"
class Frame(H):
    def __repr__(self): return "a b\n1 2"
class M:
    def _repr_markdown_(self): return "# Title"
class J:
    def _repr_json_(self): return {"a": [1, 2]}
class B:
    def _repr_mimebundle_(self, include=None, exclude=None): return {"text/plain": "plain", "text/html": "<b>bold</b>"}, {}
class Fails:
    def _repr_html_(self): raise ValueError("no")
    def __repr__(self): return "fails"
class All:
    def __getattr__(self, name): return lambda *a, **k: "anything"
    def __repr__(self): return "all"
`)
	for _, c := range []struct{ code, out, mime, data string }{
		{"H()", "Title\na\tb\n1\t2 < 3\n", "text/html", "<style>"},
		{"Frame()", "a b\n1 2\n", "text/html", "<style>"},
		{"M()", "# Title\n", "text/markdown", "# Title"},
		{"J()", "{\n  \"a\": [\n    1,\n    2\n  ]\n}\n", "application/json", "{"},
		{"B()", "plain\n", "text/html", "<b>bold</b>"},
		{"Fails()", "[_repr_html_ of a Fails failed: ValueError: no]\nfails\n", "", ""},
		{"All()", "all\n", "", ""},
		{"H", "<class '__main__.H'>\n", "", ""},
		{"display('<p>one</p><p>two</p>', mime='text/html')", "one\ntwo\n", "text/html", "<p>one"},
		{"display({'a': 1}, mime='application/json')", "{\n  \"a\": 1\n}\n", "application/json", "{"},
		{"try: display(b'', mime='image/gif')\nexcept ValueError as e: print(e)", "display shows text/plain, image/png, image/jpeg, text/markdown, text/html, application/json, and no image/gif\n", "", ""},
		{"display('a', 1)", "'a'\n1\n", "", ""},
		{"agrees = agentrun.display is display; agrees", "True\n", "", ""},
	} {
		got := cell(t, k, c.code)
		mime, data := "", ""
		if len(got.Displays) > 0 {
			mime, data = got.Displays[0].MIMEType, string(got.Displays[0].Data)
		}
		if got.Code != 0 || got.out != c.out || mime != c.mime || !strings.HasPrefix(data, c.data) {
			t.Errorf("%s: %q, %s %q (%+v)", c.code, got.out, mime, data, got.Exit)
		}
	}
}

func TestTooMuchThatIsShownIsLeftOutAndSaid(t *testing.T) {
	k := kernel(t, Options{})
	got := cell(t, k, "for i in range(4): display(bytes(20 << 20), mime='image/png')\ndisplay(bytes(33 << 20), mime='image/png')")
	if len(got.Displays) != 3 || len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "1 of the things that the cell displayed were not kept") ||
		!strings.Contains(got.out, "more than the 32 MiB that are kept]") {
		t.Errorf("%d displays, %q, %s", len(got.Displays), got.Notes, got.out)
	}
}

func TestAResultIsCutAndTheOutputIsNot(t *testing.T) {
	k := kernel(t, Options{})
	got := cell(t, k, "'x' * 100000")
	if len(got.out) != 100003 || len(got.result()) > 52000 || !strings.HasSuffix(got.result(), "… [100002 characters; the output has all of them]") {
		t.Errorf("%d, %d", len(got.out), len(got.result()))
	}
}

// withModule is a kernel whose Python has a module; the test is skipped where none has it.
func withModule(t *testing.T, module string) *Kernel {
	t.Helper()
	for _, path := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(path, "-c", "import "+module).Run() == nil {
			return kernel(t, Options{Path: path})
		}
	}
	t.Skipf("no Python here has %s: Debian's package python3-%[1]s brings it", module)
	return nil
}

func size(t *testing.T, d Display) image.Point {
	t.Helper()
	c, _, err := image.DecodeConfig(bytes.NewReader(d.Data))
	if err != nil {
		t.Fatal(err)
	}
	return image.Pt(c.Width, c.Height)
}

func TestFiguresOfMatplotlibAreShown(t *testing.T) {
	k := withModule(t, "matplotlib")
	for _, c := range []struct {
		name, code string
		images     int
		out        string
	}{
		{"one that is open at the end", "import matplotlib.pyplot as plt; _ = plt.plot([1, 2])", 1, "[image 1: image/png"},
		{"each is shown once", "1", 0, "1"},
		{"by show", "_ = plt.plot([1]); plt.show(); print('shown')", 1, "[image 1: image/png"},
		{"two", "for i in range(2): plt.figure(); plt.plot([i])", 2, "[image 1: image/png"},
		{"as a value", "f = plt.figure(); _ = plt.plot([3]); f", 1, "[image 1: image/png"},
		{"without pyplot", "from matplotlib.figure import Figure\ng = Figure(); _ = g.subplots().plot([1]); g", 1, "[image 1: image/png"},
		{"of a cell that fails", "_ = plt.plot([1]); 1/0", 1, "[image 1: image/png"},
	} {
		got := cell(t, k, c.code)
		if len(got.Displays) != c.images || !strings.HasPrefix(got.out, c.out) || strings.Contains(got.out, "Warning") {
			t.Errorf("%s: %d images, %q", c.name, len(got.Displays), got.out)
		}
		for _, d := range got.Displays {
			if s := size(t, d); d.MIMEType != "image/png" || s.X < 300 {
				t.Errorf("%s: %s %v", c.name, d.MIMEType, s)
			}
		}
	}
}

func TestMatplotlibIsImportedByCellsAlone(t *testing.T) {
	k := withModule(t, "matplotlib")
	if got := cell(t, k, "import sys; [m for m in sys.modules if m.startswith(('matplotlib', 'numpy', 'PIL'))]"); got.out != "[]\n" {
		t.Error(got.out)
	}
}

func TestPicturesOfPillowAreShown(t *testing.T) {
	k := withModule(t, "PIL")
	got := cell(t, k, "from PIL import Image; Image.new('RGB', (30, 20))")
	if len(got.Displays) != 1 || size(t, got.Displays[0]) != image.Pt(30, 20) || got.out != "[image 1: image/png, 30 x 20 pixels]\n" {
		t.Errorf("%+v", got)
	}
	tool := &Tool{Kernel: k, Dir: "/"}
	res, err := tool.Call(context.Background(), []byte(`{"code": "Image.new('RGB', (9000, 20))"}`))
	if err != nil || res.IsError || len(res.Images) != 1 || !strings.Contains(res.Text, "is shown with") {
		t.Errorf("%+v, %v", res, err)
	}
}
