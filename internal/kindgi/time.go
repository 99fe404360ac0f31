package kindgi

// validTime tells whether b is a date-time as provstream writes it: RFC 3339,
// UTC, exactly three fraction digits, Z.
func validTime(b []byte) bool {
	if len(b) != 24 || b[4] != '-' || b[7] != '-' || b[10] != 'T' || b[13] != ':' || b[16] != ':' || b[19] != '.' || b[23] != 'Z' {
		return false
	}
	_, ok := two(b, 20)
	return ok && b[22]-'0' <= 9 && validSeconds(b) && b[17] != '6'
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
