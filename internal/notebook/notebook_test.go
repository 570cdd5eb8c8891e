package notebook

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

const sample = `{"nbformat":4,"nbformat_minor":5,"metadata":{"language_info":{"name":"python"},"kernelspec":{"name":"python3"}},"cells":[
{"cell_type":"markdown","source":["# Title\n","text"],"metadata":{}},
{"cell_type":"code","execution_count":3,"source":"print(1)\nplot()","outputs":[
 {"output_type":"stream","name":"stdout","text":["1\n"]},
 {"output_type":"display_data","data":{"image/png":"iVBO\nRw==","text/plain":"<Figure>"}},
 {"output_type":"execute_result","execution_count":3,"data":{"text/html":"<b>x</b>","text/plain":["x\n","y"]}},
 {"output_type":"display_data","data":{"application/json":{"a":1}}},
 {"output_type":"display_data","data":{"application/vnd.custom":"?"}},
 {"output_type":"display_data","data":{"image/png":"!"}},
 {"output_type":"error","ename":"ValueError","evalue":"bad","traceback":["Traceback","ValueError: bad"]}]},
{"cell_type":"code","execution_count":null,"source":[],"outputs":[]},
{"cell_type":"raw","source":7}]}`

const want = `--- cell 1: markdown ---
# Title
text

--- cell 2: code, run as [3] ---
print(1)
plot()
--- cell 2: output, stdout ---
1
--- cell 2: output, image/png of 4 bytes ---
--- cell 2: output, text/plain ---
<Figure>
--- cell 2: output, text/plain ---
x
y
--- cell 2: output, application/json ---
{"a":1}
--- cell 2: output, application/vnd.custom, which is not shown ---
--- cell 2: output, image/png, which is damaged ---
--- cell 2: error, ValueError ---
Traceback
ValueError: bad

--- cell 3: code, not run ---

--- cell 4: raw ---
`

func TestANotebookIsItsCellsWithTheirOutputs(t *testing.T) {
	n, err := Render([]byte(sample))
	if err != nil || string(n.Text) != want || n.Cells != 4 || n.Language != "python" {
		t.Errorf("%d cells, %s, %v\n%s", n.Cells, n.Language, err, n.Text)
	}
	if len(n.Pictures) != 1 || n.Pictures[0].Line != 10 || string(n.Pictures[0].Data) != "\x89PNG"[:4] {
		t.Errorf("%+v", n.Pictures)
	}
}

func TestAnOldNotebookIsReadToo(t *testing.T) {
	n, err := Render([]byte(`{"nbformat":3,"worksheets":[{"cells":[{"cell_type":"heading","level":2,"source":"T"},
{"cell_type":"code","input":["a\n"],"prompt_number":1,"language":"python","outputs":[{"output_type":"pyout","text":["2"],"png":"iVBORw=="},{"output_type":"stream","stream":"stderr","text":"e"}]}]}]}`))
	if err != nil || !strings.Contains(string(n.Text), "## T\n") || !strings.Contains(string(n.Text), "run as [1] ---\na\n") ||
		!strings.Contains(string(n.Text), "text/plain ---\n2\n") || !strings.Contains(string(n.Text), "stderr ---\ne\n") || len(n.Pictures) != 1 {
		t.Errorf("%v\n%s", err, n.Text)
	}
}

func TestWhatIsNoNotebookIsRefused(t *testing.T) {
	for _, data := range []string{"", "{}", "[]", `{"cells":[]}`, `{"nbformat":4`, "text", `{"nbformat":"4"}`} {
		if _, err := Render([]byte(data)); !errors.Is(err, ErrNotebook) {
			t.Errorf("%q: %v", data, err)
		}
	}
}

func FuzzRender(f *testing.F) {
	f.Add([]byte(sample))
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := Render(data)
		if err != nil {
			return
		}
		lines := int64(bytes.Count(n.Text, []byte("\n")))
		for _, p := range n.Pictures {
			if p.Line < 1 || p.Line > lines {
				t.Errorf("a picture at line %d of %d", p.Line, lines)
			}
		}
	})
}
