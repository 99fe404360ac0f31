package kindgi

import "encoding/binary"

// digitsWhere holds eight bytes of text against a template in which 0 stands
// for any digit and every other byte for itself: the exclusive or leaves the
// digits' values, and must leave nothing else.
func digitsWhere(text []byte, template, literal uint64) bool {
	y := binary.LittleEndian.Uint64(text) ^ template
	return y&(literal|0xf0*lsb)|(y+0x76*lsb)&msb == 0
}

// word is eight bytes of a template, and which of them are literal.
func word(s string) (template, literal uint64) {
	for i := 7; i >= 0; i-- {
		template = template<<8 | uint64(s[i])
		literal <<= 8
		if s[i] != '0' {
			literal |= 0xff
		}
	}
	return template, literal
}

var (
	date0, dateLiteral0 = word("0000-00-")
	date1, dateLiteral1 = word("00T00:00")
	date2, dateLiteral2 = word(":00.000Z")
)

// validTime tells whether b is a date-time as provstream writes it: RFC 3339,
// UTC, exactly three fraction digits, Z.
func validTime(b []byte) bool {
	if len(b) != 24 || !digitsWhere(b, date0, dateLiteral0) || !digitsWhere(b[8:], date1, dateLiteral1) || !digitsWhere(b[16:], date2, dateLiteral2) {
		return false
	}
	at := func(i int) int { return int(b[i]-'0')*10 + int(b[i+1]-'0') }
	month, day := at(5), at(8)
	return month >= 1 && month <= 12 && day >= 1 && (day <= 28 || day <= daysIn(100*at(0)+at(2), month)) &&
		at(11) < 24 && b[14] < '6' && b[17] < '6'
}

// validSeconds checks the first 19 bytes, whose separators are known to be
// right. Second 60 passes.
func validSeconds(b []byte) bool {
	year, ok0 := two(b, 0)
	low, ok1 := two(b, 2)
	month, ok2 := two(b, 5)
	day, ok3 := two(b, 8)
	hour, ok4 := two(b, 11)
	minute, ok5 := two(b, 14)
	second, ok6 := two(b, 17)
	return ok0 && ok1 && ok2 && ok3 && ok4 && ok5 && ok6 &&
		month >= 1 && month <= 12 && day >= 1 && day <= daysIn(100*year+low, month) && hour < 24 && minute < 60 && second <= 60
}

// rfc3339 tells whether b is any date-time of RFC 3339 §5.6. A second 60 is
// there only in the last minute of a day of UTC.
func rfc3339(text []byte) bool {
	b := text
	if len(b) < 20 || b[4] != '-' || b[7] != '-' || b[10]|0x20 != 't' || b[13] != ':' || b[16] != ':' || !validSeconds(b) {
		return false
	}
	b = b[19:]
	if b[0] == '.' {
		n := 1
		for n < len(b) && b[n]-'0' <= 9 {
			n++
		}
		if n == 1 {
			return false
		}
		b = b[n:]
	}
	leap := text[17] == '6'
	hours, _ := two(text, 11)
	minutes, _ := two(text, 14)
	if len(b) == 1 {
		return b[0]|0x20 == 'z' && (!leap || hours == 23 && minutes == 59)
	}
	if len(b) != 6 || b[0] != '+' && b[0] != '-' || b[3] != ':' {
		return false
	}
	hour, ok1 := two(b, 1)
	minute, ok2 := two(b, 4)
	if b[0] == '+' {
		hour, minute = -hour, -minute
	}
	const day = 24 * 60
	utc := (60*(hours+hour) + minutes + minute + day) % day
	return ok1 && ok2 && hour > -24 && hour < 24 && minute > -60 && minute < 60 && (!leap || utc == day-1)
}

func two(b []byte, i int) (int, bool) {
	x, y := b[i]-'0', b[i+1]-'0'
	return int(x)*10 + int(y), x <= 9 && y <= 9
}

func daysIn(year, month int) int {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}
