package kindgi

// validTime tells whether b is a date-time as provstream writes it: RFC 3339,
// UTC, exactly three fraction digits, Z.
func validTime(b []byte) bool {
	if len(b) != 24 || b[4] != '-' || b[7] != '-' || b[10] != 'T' || b[13] != ':' || b[16] != ':' || b[19] != '.' || b[23] != 'Z' {
		return false
	}
	year, ok0 := two(b, 0)
	low, ok1 := two(b, 2)
	month, ok2 := two(b, 5)
	day, ok3 := two(b, 8)
	hour, ok4 := two(b, 11)
	minute, ok5 := two(b, 14)
	second, ok6 := two(b, 17)
	_, ok7 := two(b, 20)
	if !(ok0 && ok1 && ok2 && ok3 && ok4 && ok5 && ok6 && ok7) || b[22]-'0' > 9 {
		return false
	}
	return month >= 1 && month <= 12 && day >= 1 && day <= daysIn(100*year+low, month) && hour < 24 && minute < 60 && second < 60
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
