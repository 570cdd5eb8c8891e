package charset

import (
	"bytes"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
	"golang.org/x/text/transform"
)

const (
	japaneseText = "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。\n何でも薄暗いじめじめした所でニャーニャー泣いていた事だけは記憶している。\n"
	chineseText  = "道可道，非常道；名可名，非常名。无名天地之始，有名万物之母。\n故常无欲，以观其妙；常有欲，以观其徼。\n"
	taiwanText   = "人之初，性本善。性相近，習相遠。苟不教，性乃遷。教之道，貴以專。\n昔孟母，擇鄰處。子不學，斷機杼。\n"
	koreanText   = "나라의 말이 중국과 달라 문자와 서로 통하지 아니하므로 어리석은 백성이 이르고자 할 바가 있어도\n마침내 제 뜻을 능히 펴지 못하는 사람이 많다.\n"
	russianText  = "Все счастливые семьи похожи друг на друга, каждая несчастливая семья несчастлива по-своему.\nВсё смешалось в доме Облонских.\n"
	polishText   = "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw.\nSą oni obdarzeni rozumem i sumieniem i powinni postępować wobec innych w duchu braterstwa. Ponieważ uznanie przyrodzonej godności jest podstawą wolności i sprawiedliwości na świecie, każdy człowiek ma prawo do życia.\n"
	greekText    = "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.\nΕίναι προικισμένοι με λογική και συνείδηση.\n"
	germanText   = "Die Größe des Gefäßes überrascht: für ein Öl müßte man länger suchen.\n"
	frenchText   = "Là où l'été a été chaud, les élèves préfèrent rester près de la forêt.\n"
)

var texts = []struct {
	name, text string
	enc        encoding.Encoding
	want       string
}{
	{"Shift-JIS", japaneseText, japanese.ShiftJIS, "Shift-JIS"},
	{"EUC-JP", japaneseText, japanese.EUCJP, "EUC-JP"},
	{"GB18030", chineseText, simplifiedchinese.GB18030, "GB18030"},
	{"Big5", taiwanText, traditionalchinese.Big5, "Big5"},
	{"EUC-KR", koreanText, korean.EUCKR, "EUC-KR"},
	{"Polish", polishText, charmap.ISO8859_2, "ISO-8859-2"},
	{"Greek", greekText, charmap.ISO8859_7, "ISO-8859-7"},
	{"Windows-1251", russianText, charmap.Windows1251, "Windows-1251"},
	{"KOI8-R", russianText, charmap.KOI8R, "KOI8-R"},
	{"German in Latin-1", germanText, charmap.ISO8859_1, "ISO-8859-1"},
	{"French in Latin-1", frenchText, charmap.ISO8859_1, "ISO-8859-1"},
	{"a euro sign", "Preis: 5 € für „alles“\n", charmap.Windows1252, "Windows-1252"},
	{"one word", "grün\n", charmap.ISO8859_1, "ISO-8859-1"},
	{"a name", "# Author: José Muñoz\nprint('x')\n", charmap.ISO8859_1, "ISO-8859-1"},
	{"Swedish in Latin-1", "Räksmörgås på Åland är gött\n", charmap.ISO8859_1, "ISO-8859-1"},
	{"UTF-8", japaneseText, encoding.Nop, "UTF-8"},
}

func TestTheEncodingIsGuessed(t *testing.T) {
	for _, c := range texts {
		t.Run(c.name, func(t *testing.T) {
			data, err := c.enc.NewEncoder().Bytes([]byte(strings.Repeat("ascii line\n", 1000) + c.text))
			if err != nil {
				t.Fatal(err)
			}
			var whole, split Checker
			_, _ = whole.Write(data)
			for r := iotest.OneByteReader(bytes.NewReader(data)); ; {
				var b [1]byte
				if n, _ := r.Read(b[:]); n == 0 {
					break
				}
				_, _ = split.Write(b[:])
			}
			e := whole.Guess()
			if e.String() != c.want || e.IsUTF8() != (c.want == "UTF-8") {
				t.Fatalf("it is %s", e)
			}
			if again := split.Guess(); again.IsUTF8() != e.IsUTF8() {
				t.Errorf("in pieces it is %s", again)
			}
			text, _, err := transform.Bytes(e.NewDecoder(), data)
			if err != nil || !strings.HasSuffix(string(text), c.text) {
				t.Errorf("%q, %v", text[len(text)-min(len(text), 200):], err)
			}
		})
	}
}

func TestDamagedUTF8StaysUTF8(t *testing.T) {
	for _, text := range []string{japaneseText + "\xff", "grün grün grün \xfc\n", "plain", "", "é\xc3"} {
		var c Checker
		_, _ = c.Write([]byte(text))
		if e := c.Guess(); !e.IsUTF8() {
			t.Errorf("%q is %s", text, e)
		}
	}
}

func FuzzGuess(f *testing.F) {
	for _, c := range texts {
		data, _ := c.enc.NewEncoder().Bytes([]byte(c.text))
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var c Checker
		_, _ = c.Write(data)
		e := c.Guess()
		if _, _, err := transform.Bytes(e.NewDecoder(), data); err != nil {
			t.Errorf("%s: %v", e, err)
		}
	})
}
