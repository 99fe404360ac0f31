"""What the second reader stands on: strict JSON, RFC 8785, instants, clamping."""
import datetime
import hashlib
import math
import re

class NotJSON(Exception):
    """The value is no JSON text, or too deep."""

WS = b' \t\r\n'


class Parser:
    """A JSON parser that goes on over what is JSON and not strict."""

    def __init__(self, b):
        self.b = b
        self.i = 0
        self.strict = True
        self.elements = None

    def ws(self):
        while self.i < len(self.b) and self.b[self.i] in WS:
            self.i += 1

    def val(self, depth):
        b = self.b
        if self.i >= len(b):
            raise NotJSON()
        c = b[self.i:self.i + 1]
        if c == b'{':
            if depth + 1 > 128:
                raise NotJSON()
            self.i += 1
            self.ws()
            o = {}
            if b[self.i:self.i + 1] == b'}':
                self.i += 1
                return o
            while True:
                if b[self.i:self.i + 1] != b'"':
                    raise NotJSON()
                k = self.str()
                self.ws()
                if b[self.i:self.i + 1] != b':':
                    raise NotJSON()
                self.i += 1
                self.ws()
                v = self.val(depth + 1)
                if k in o:
                    self.strict = False
                else:
                    o[k] = v
                self.ws()
                c = b[self.i:self.i + 1]
                if c == b',':
                    self.i += 1
                    self.ws()
                    continue
                if c == b'}':
                    self.i += 1
                    return o
                raise NotJSON()
        if c == b'[':
            if depth + 1 > 128:
                raise NotJSON()
            self.i += 1
            self.ws()
            a = []
            elements = []
            if b[self.i:self.i + 1] == b']':
                self.i += 1
            else:
                while True:
                    step = self.i
                    keep = self.strict
                    self.strict = True
                    v = self.val(depth + 1)
                    elements.append((step, self.i, self.strict, v))
                    self.strict = keep and self.strict if depth else keep
                    a.append(v)
                    self.ws()
                    c = b[self.i:self.i + 1]
                    if c == b',':
                        self.i += 1
                        self.ws()
                        continue
                    if c == b']':
                        self.i += 1
                        break
                    raise NotJSON()
            if depth == 0:
                self.elements = elements
            else:
                pass
            return a
        if c == b'"':
            return self.str()
        for w, v in ((b'true', True), (b'false', False), (b'null', None)):
            if b.startswith(w, self.i):
                self.i += len(w)
                return v
        m = re.compile(b'-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?').match(b, self.i)
        if not m:
            raise NotJSON()
        self.i = m.end()
        f = float(m.group())
        if math.isinf(f):
            self.strict = False
            f = 0.0
        return f

    def str(self):
        b = self.b
        self.i += 1
        out = []
        ok = True
        while True:
            if self.i >= len(b):
                raise NotJSON()
            c = b[self.i]
            if c == 34:
                self.i += 1
                break
            if c < 32:
                raise NotJSON()
            if c == 92:
                e = b[self.i + 1:self.i + 2]
                if e in (b'"', b'\\', b'/', b'b', b'f', b'n', b'r', b't') and e:
                    out.append({b'"': '"', b'\\': '\\', b'/': '/', b'b': '\x08', b'f': '\x0c', b'n': '\n', b'r': '\r', b't': '\t'}[e].encode())
                    self.i += 2
                elif e == b'u':
                    h = b[self.i + 2:self.i + 6]
                    if not re.fullmatch(b'[0-9a-fA-F]{4}', h):
                        raise NotJSON()
                    out.append(int(h, 16))
                    self.i += 6
                else:
                    raise NotJSON()
            else:
                out.append(bytes([c]))
                self.i += 1
        res = b''
        i = 0
        while i < len(out):
            x = out[i]
            if isinstance(x, int):
                if 55296 <= x < 56320 and i + 1 < len(out) and isinstance(out[i + 1], int) and (56320 <= out[i + 1] < 57344):
                    x = 65536 + (x - 55296 << 10) + out[i + 1] - 56320
                    i += 1
                if 55296 <= x < 57344:
                    ok = False
                    res += b'\xff'
                else:
                    res += chr(x).encode()
            else:
                res += x
            i += 1
        try:
            t = res.decode('utf-8')
        except UnicodeDecodeError:
            ok = False
            t = Bad(res.decode('latin1'))
        if not ok:
            self.strict = False
            return Bad(res.decode('latin1'))
        return t

class Bad(str):
    """A string that is no valid Unicode."""

    def __new__(c, s):
        return str.__new__(c, '\x00BAD' + s)

def parse(b):
    """Parses a whole text."""
    p = Parser(b)
    p.ws()
    v = p.val(0)
    p.ws()
    if p.i != len(b):
        raise NotJSON()
    return (v, p)

def number(f):
    if f == 0:
        return '0'
    r = repr(f)
    sign = ''
    if r[0] == '-':
        sign = '-'
        r = r[1:]
    if 'e' in r:
        m, e = r.split('e')
        e = int(e)
    else:
        m, e = (r, 0)
    ip, _, fp = m.partition('.')
    if fp == '0':
        fp = ''
    digits = ip + fp
    point = len(ip) + e
    d = digits.lstrip('0')
    point -= len(digits) - len(d)
    d = d.rstrip('0')
    n = point
    k = len(d)
    if k <= n <= 21:
        s = d + '0' * (n - k)
    elif 0 < n <= 21:
        s = d[:n] + '.' + d[n:]
    elif -6 < n <= 0:
        s = '0.' + '0' * -n + d
    else:
        e = n - 1
        s = d[0] + ('.' + d[1:] if k > 1 else '') + 'e' + ('+' if e > 0 else '-') + str(abs(e))
    return sign + s
ESC = {'"': '\\"', '\\': '\\\\', '\x08': '\\b', '\x0c': '\\f', '\n': '\\n', '\r': '\\r', '\t': '\\t'}

def jcs_string(s):
    return '"' + ''.join((ESC.get(c) or ('\\u%04x' % ord(c) if ord(c) < 32 else c) for c in s)) + '"'

def jcs(v):
    """RFC 8785."""
    if v is None:
        return 'null'
    if v is True:
        return 'true'
    if v is False:
        return 'false'
    if isinstance(v, (int, float)):
        return number(float(v))
    if isinstance(v, str):
        return jcs_string(v)
    if isinstance(v, list):
        return '[' + ','.join(map(jcs, v)) + ']'
    return '{' + ','.join((jcs_string(k) + ':' + jcs(v[k]) for k in sorted(v, key=lambda k: k.encode('utf-16-be')))) + '}'

def sha256(b):
    return hashlib.sha256(b).hexdigest()

def is_uuid(s):
    return isinstance(s, str) and re.fullmatch('[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}', s) is not None

def instant(s):
    """Milliseconds of an RFC 3339 date-time, or None."""
    m = re.fullmatch('([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(\\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})', s)
    if not m:
        return None
    Y, M, D, h, mi, se = [int(x) for x in m.groups()[:6]]
    if h > 23 or mi > 59 or se > 60:
        return None
    leap = Y % 4 == 0 and (Y % 100 != 0 or Y % 400 == 0)
    if not 1 <= M <= 12 or not 1 <= D <= [31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][M - 1]:
        return None
    off = 0
    if m[8] not in 'Zz':
        oh, om = (int(m[8][1:3]), int(m[8][4:6]))
        if oh > 23 or om > 59:
            return None
        off = (oh * 60 + om) * (1 if m[8][0] == '+' else -1)
    y = 2000 + Y % 400
    days = datetime.date(y, M, D).toordinal() - 719163 + (Y - y) // 400 * 146097
    mins = days * 1440 + h * 60 + mi - off
    if se == 60 and mins % 1440 != 1439:
        return None
    ms = int((m[7] or '.0')[1:].ljust(3, '0')[:3])
    return (mins * 60 + se) * 1000 + ms

def clamp(s):
    """Bounds a string that is taken over."""
    b = s.encode()
    if len(b) <= 256:
        return s
    c = b[:190]
    while True:
        try:
            t = c.decode()
            break
        except UnicodeDecodeError:
            c = c[:-1]
    return t + '#' + sha256(b)
