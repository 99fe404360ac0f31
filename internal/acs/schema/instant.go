package schema

// ParseInstant reads an RFC 3339 date-time and returns its milliseconds since
// the Unix epoch; further digits are cut. It is strict: every field has its
// full width, the day exists in its month, T and Z may be lower case, and
// second 60 stands only where UTC has 23:59:60, where it equals the next
// second.
func ParseInstant[T string | []byte](s T) (ms int64, ok bool) {
	// 2006-01-02T15:04:05Z is the shortest.
	if len(s) < 20 || s[4] != '-' || s[7] != '-' || s[10]|0x20 != 't' || s[13] != ':' || s[16] != ':' {
		return 0, false
	}
	year := digits(s, 0, 2)*100 + digits(s, 2, 2)
	month, day := digits(s, 5, 2), digits(s, 8, 2)
	hour, minute, second := digits(s, 11, 2), digits(s, 14, 2), digits(s, 17, 2)
	if digits(s, 0, 2) < 0 || digits(s, 2, 2) < 0 || month < 1 || month > 12 || day < 1 || day > daysIn(year, month) ||
		hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60 {
		return 0, false
	}
	i, millis := 19, int64(0)
	if s[i] == '.' {
		i++
		start := i
		scale := int64(100)
		for i < len(s) && s[i]-'0' <= 9 {
			millis += int64(s[i]-'0') * scale
			scale /= 10
			i++
		}
		if i == start || i == len(s) {
			return 0, false
		}
	}
	offset := int64(0) // minutes
	switch c := s[i]; {
	case c|0x20 == 'z':
		if len(s) != i+1 {
			return 0, false
		}
	case c == '+' || c == '-':
		if len(s) != i+6 || s[i+3] != ':' {
			return 0, false
		}
		h, m := digits(s, i+1, 2), digits(s, i+4, 2)
		if h < 0 || h > 23 || m < 0 || m > 59 {
			return 0, false
		}
		offset = h*60 + m
		if c == '-' {
			offset = -offset
		}
	default:
		return 0, false
	}
	minutes := daysSinceEpoch(year, month, day)*24*60 + hour*60 + minute - offset
	if second == 60 && floorMod(minutes, 24*60) != 24*60-1 {
		return 0, false
	}
	return (minutes*60+second)*1000 + millis, true
}

// digits reads n digits from i on, -1 where one is none.
func digits[T string | []byte](s T, i, n int) int64 {
	v := int64(0)
	for _, c := range []byte(s[i : i+n]) {
		if c < '0' || c > '9' {
			return -1
		}
		v = v*10 + int64(c-'0')
	}
	return v
}

func daysIn(year, month int64) int64 {
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

// daysSinceEpoch counts the days of the proleptic Gregorian calendar from
// 1970-01-01 to a date. Years begin in March for the count, so that the day of
// a leap year stands last.
func daysSinceEpoch(year, month, day int64) int64 {
	if month <= 2 {
		year--
		month += 12
	}
	era := year / 400
	if year < 0 {
		era = -1 // year 0 began in January
	}
	ofEra := year - era*400
	ofYear := (153*(month-3)+2)/5 + day - 1
	return era*146097 + ofEra*365 + ofEra/4 - ofEra/100 + ofYear - 719468
}

func floorMod(a, b int64) int64 {
	return (a%b + b) % b
}
